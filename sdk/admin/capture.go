package admin

import (
	"context"
	"net/http"
)

// RereadCapture makes the sidecar publish all documents of the collection that is captured to a topic once more. It returns once
// the request is saved. The code not_found means that nothing is captured to the topic.
func (h *HTTP) RereadCapture(ctx context.Context, topic string) error {
	_, err := h.change(ctx, http.MethodPost, "/v1/captures/"+pathPart(topic)+"/reread", nil)
	return err
}
