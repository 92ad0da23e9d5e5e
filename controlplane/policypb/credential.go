package policypb

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"

	"google.golang.org/protobuf/types/known/structpb"
)

// PeerCredentialType is the type of the resource that a sidecar has by its own name
// ([PeerCredentialName]): by what its peers know it, and it them. The messages are
// structs that NewPeerCredential makes.
const PeerCredentialType = "type.googleapis.com/google.protobuf.Struct"

// PeerKey is under which the metadata of a sidecar's node has its public key. Keys
// are base64.
const PeerKey = "peer_key"

const (
	credentialText   = "credential"
	credentialIssuer = "issuer"
)

// PeerCredentialName is that of a sidecar's resource; no policy has such a name.
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

// ReadPeerCredential is the way back.
func ReadPeerCredential(m *structpb.Struct) (credential string, issuer []byte, err error) {
	issuer, err = DecodeKey(m.GetFields()[credentialIssuer].GetStringValue())
	return m.GetFields()[credentialText].GetStringValue(), issuer, err
}

// EncodeKey writes a public key as messages have it.
func EncodeKey(key []byte) string { return base64.StdEncoding.EncodeToString(key) }

// DecodeKey is the way back.
func DecodeKey(text string) ([]byte, error) { return base64.StdEncoding.DecodeString(text) }
