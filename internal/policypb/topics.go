package policypb

import "google.golang.org/grpc"

// The service to which a sidecar reports the topics of its store: the control plane requests each
// page with an empty message, and the sidecar answers with a [TopicsPage] of at most MaxTopicsPage
// names, the first of which are all topics. The control plane requests them of one sidecar of each
// store; the streams of the others wait.
const (
	TopicsService = "sluice.v1.Topics"
	TopicsMethod  = "/" + TopicsService + "/Report"
	MaxTopicsPage = 1000
)

// TopicsStream describes a stream of the service.
var TopicsStream = grpc.StreamDesc{StreamName: "Report", ServerStreams: true, ClientStreams: true}
