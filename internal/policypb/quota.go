package policypb

import "strings"

// These are the names in the messages of the quota service: its domain, and the parts of a bucket's
// id. The control plane's package quota documents them.
const (
	QuotaDomain = "sluice"

	QuotaTopic    = "topic"
	QuotaTenant   = "tenant"
	QuotaShare    = "share"
	QuotaReport   = "report"
	QuotaWants    = "wants"
	QuotaAsk      = "ask"
	QuotaBack     = "back"
	QuotaLeft     = "left"
	QuotaRate     = "rate"
	QuotaCapacity = "capacity"
	QuotaGrant    = "grant"
)

// QuotaName names the owner of a rate: a topic, or one of its tenants.
func QuotaName(topic, tenant string) string {
	if tenant == "" {
		return topic
	}
	return topic + "/" + tenant
}

// QuotaParts splits a name. The tenant of a topic's name is "", since topics have no slash.
func QuotaParts(name string) (topic, tenant string) {
	topic, tenant, _ = strings.Cut(name, "/")
	return topic, tenant
}
