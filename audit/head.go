package audit

import (
	"bytes"
	"crypto/ed25519"
	"encoding/binary"

	"github.com/brig-run/brig"
)

// headForm is what form is, of a head.
const headForm = "brig audit head 1"

// signed is what of a head is signed.
func signed(h brig.AuditHead) []byte {
	b := []byte(headForm)
	b = binary.BigEndian.AppendUint32(b, uint32(len(h.Tenant)))
	b = append(b, h.Tenant...)
	b = binary.BigEndian.AppendUint64(b, uint64(h.Seq))
	b = append(b, h.Hash[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(h.At.Unix()))
	return binary.BigEndian.AppendUint32(b, uint32(h.At.Nanosecond()))
}

// Sign signs a head. Without a key it does nothing.
func Sign(h *brig.AuditHead, key ed25519.PrivateKey) {
	h.At = h.At.UTC().Round(0)
	if len(key) == ed25519.PrivateKeySize {
		h.Key = key.Public().(ed25519.PublicKey)
		h.Signature = ed25519.Sign(key, signed(*h))
	}
}

// CheckHead checks a head's signature: by key, if there is one, and otherwise by the
// key that it names.
func CheckHead(h brig.AuditHead, key ed25519.PublicKey) error {
	switch {
	case len(key) == 0 && len(h.Key) == 0 && len(h.Signature) == 0:
		return nil
	case len(key) == 0:
		key = h.Key
	case !bytes.Equal(key, h.Key):
		return &Bad{Seq: h.Seq, Why: "the end of the log is not signed by the key that it should be"}
	}
	if len(key) != ed25519.PublicKeySize || !ed25519.Verify(key, signed(h), h.Signature) {
		return &Bad{Seq: h.Seq, Why: "what says that it is the last was changed: its signature is wrong"}
	}
	return nil
}
