package policypb

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"

	"google.golang.org/protobuf/types/known/structpb"
)

// PeerCredentialType is the type of the resource with a sidecar's peer credential, which has the
// sidecar's own name ([PeerCredentialName]). The messages are structs that NewPeerCredential makes.
const PeerCredentialType = "type.googleapis.com/google.protobuf.Struct"

// PeerKey is the key of a sidecar's public key in its node's metadata. Public keys are base64.
const PeerKey = "peer_key"

const (
	credentialText   = "credential"
	credentialIssuer = "issuer"
)

// PeerCredentialName is the name of a sidecar's resource; no policy has such a name.
func PeerCredentialName(nodeID string) string {
	sum := sha256.Sum256([]byte(nodeID))
	return "peer-credential/" + hex.EncodeToString(sum[:16])
}

// NewPeerCredential makes the message.
func NewPeerCredential(credential string, issuer []byte) *structpb.Struct {
	return &structpb.Struct{Fields: map[string]*structpb.Value{
		credentialText:   structpb.NewStringValue(credential),
		credentialIssuer: structpb.NewStringValue(EncodeKey(issuer)),
	}}
}

// ReadPeerCredential reads a message of NewPeerCredential.
func ReadPeerCredential(m *structpb.Struct) (credential string, issuer []byte, err error) {
	issuer, err = DecodeKey(m.GetFields()[credentialIssuer].GetStringValue())
	return m.GetFields()[credentialText].GetStringValue(), issuer, err
}

// EncodeKey encodes a public key for a message.
func EncodeKey(key []byte) string { return base64.StdEncoding.EncodeToString(key) }

// DecodeKey decodes a public key of a message.
func DecodeKey(text string) ([]byte, error) { return base64.StdEncoding.DecodeString(text) }
