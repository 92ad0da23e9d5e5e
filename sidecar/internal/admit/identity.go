package admit

import "github.com/sluice-bus/sluice/sdk/wire"

// identifyBySource gives a CloudEvent the id that its source and its own id make together, and keeps its own in a header. An event
// of Dapr's may have an id and no source: it keeps its id.
func identifyBySource(ev *wire.Event) {
	source, ok := ev.Headers.Get(wire.HeaderCloudEventSource)
	if !ok {
		return
	}
	ev.Headers = ev.Headers.With(wire.HeaderCloudEventID, ev.ID)
	ev.ID = wire.CloudEventID(source, ev.ID)
}
