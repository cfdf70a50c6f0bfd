package audit

import (
	"bytes"
	"crypto/ed25519"
	"encoding/binary"

	"github.com/brig-run/brig"
)

// headForm identifies the byte encoding of a head.
const headForm = "brig audit head 1"

// signedBytes returns the bytes that a head's signature covers.
func signedBytes(h brig.AuditHead) []byte {
	b := []byte(headForm)
	b = binary.BigEndian.AppendUint32(b, uint32(len(h.Tenant)))
	b = append(b, h.Tenant...)
	b = binary.BigEndian.AppendUint64(b, uint64(h.Seq))
	b = append(b, h.Hash[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(h.At.Unix()))
	return binary.BigEndian.AppendUint32(b, uint32(h.At.Nanosecond()))
}

// Sign signs a head. It does nothing if there is no key.
func Sign(h *brig.AuditHead, key ed25519.PrivateKey) {
	h.At = h.At.UTC().Round(0)
	if len(key) == ed25519.PrivateKeySize {
		h.Key = key.Public().(ed25519.PublicKey)
		h.Signature = ed25519.Sign(key, signedBytes(*h))
	}
}

// CheckHead verifies a head's signature. It uses key if given, and otherwise
// the key that the head names.
func CheckHead(h brig.AuditHead, key ed25519.PublicKey) error {
	switch {
	case len(key) == 0 && len(h.Key) == 0 && len(h.Signature) == 0:
		return nil
	case len(key) == 0:
		key = h.Key
	case !bytes.Equal(key, h.Key):
		return &InvalidRecord{Seq: h.Seq, Reason: "the head of the log is signed by another key"}
	}
	if len(key) != ed25519.PublicKeySize || !ed25519.Verify(key, signedBytes(h), h.Signature) {
		return &InvalidRecord{Seq: h.Seq, Reason: "the signature of the log's head is wrong"}
	}
	return nil
}
