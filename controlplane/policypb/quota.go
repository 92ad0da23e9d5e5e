package policypb

// The names in the messages of the quota service: its domain, the metadata of a
// stream, and the parts of a bucket's id. The control plane's package quota
// says what they mean.
const (
	QuotaDomain   = "sluice"
	QuotaNodeID   = "sluice-node-id"
	QuotaInstance = "sluice-instance"

	QuotaTopic    = "topic"
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
