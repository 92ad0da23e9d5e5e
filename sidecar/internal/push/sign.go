package push

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// Standard Webhooks 1.0: https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
const (
	headerWebhookID        = "webhook-id"
	headerWebhookTimestamp = "webhook-timestamp"
	headerWebhookSignature = "webhook-signature"

	secretPrefix     = "whsec_"
	maxSecrets       = 2
	leastSecretBytes = 24
	mostSecretBytes  = 64
)

// parseSecrets reads a file of secrets.
func parseSecrets(content []byte) (secrets [][]byte, err error) {
	words := strings.Fields(string(content))
	switch {
	case len(words) == 0:
		return nil, errors.New("the file is empty")
	case len(words) > maxSecrets:
		return nil, fmt.Errorf("the file has %d secrets; at most %d are allowed, the old and the new one", len(words), maxSecrets)
	}
	for i, word := range words {
		text, ok := strings.CutPrefix(word, secretPrefix)
		if !ok {
			return nil, fmt.Errorf("secret %d does not begin with %s", i+1, secretPrefix)
		}
		secret, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(text, "="))
		if err != nil || len(secret) < leastSecretBytes || len(secret) > mostSecretBytes {
			return nil, fmt.Errorf("secret %d must be %s and the base64 of %d to %d bytes", i+1, secretPrefix, leastSecretBytes, mostSecretBytes)
		}
		secrets = append(secrets, secret)
	}
	return secrets, nil
}

// webhookID names an event to its endpoints: it is the same for every attempt, and at every sidecar.
func webhookID(ev *wire.Event) string {
	sum := sha256.Sum256([]byte(ev.Topic + "\n" + ev.ID))
	return "evt_" + base64.RawURLEncoding.EncodeToString(sum[:])
}

// sign sets the headers by which an endpoint knows that a body is Sluice's, and new: a signature for each secret.
func sign(h http.Header, secrets [][]byte, id string, now time.Time, body []byte) {
	timestamp := strconv.FormatInt(now.Unix(), 10)
	h.Set(headerWebhookID, id)
	h.Set(headerWebhookTimestamp, timestamp)
	var signatures []string
	for _, secret := range secrets {
		mac := hmac.New(sha256.New, secret)
		mac.Write([]byte(id + "." + timestamp + "."))
		mac.Write(body)
		signatures = append(signatures, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
	if len(signatures) > 0 {
		h.Set(headerWebhookSignature, strings.Join(signatures, " "))
	}
}
