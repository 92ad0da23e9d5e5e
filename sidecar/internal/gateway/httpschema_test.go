package gateway

import "testing"

// Identities that may publish or subscribe to a topic may read its schema; others may not.
func TestSchemaRights(t *testing.T) {
	s := start(t, setup{access: authOf(t, "tokens:\n"+entry("in", "publish: [orders]")+entry("out", "subscribe: [orders]")+
		entry("else", "publish: [other], subscribe: [other], replay: [orders]")).Access})
	s.policies.Swap(snapshot(t, `[{"name":"orders","schema":{"json_schema":{"type":"number"}}}]`))
	s.want(t, 200, `"json_schema":{"type":"number"}`, "GET", orders+"/schema", "", "Authorization: Bearer in")
	s.want(t, 200, `"version":1`, "GET", orders+"/schema", "", "Authorization: Bearer out")
	s.want(t, 403, "forbidden", "GET", orders+"/schema", "", "Authorization: Bearer else")
	s.want(t, 401, "unauthorized", "GET", orders+"/schema", "")
	s.want(t, 400, "topic", "GET", "/v1/topics/a%20b/schema", "", "Authorization: Bearer in")
}
