// Package audit links the events of the audit log into a hash chain, and
// detects modifications of it. Stores link each event in the transaction that
// writes it. A reader can verify lines without a store.
//
// The package also defines the export format: JSON, one record per line.
package audit

import (
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"
	"strings"

	"github.com/brig-run/brig"
)

// NewLine returns the line of an event that follows prev. The argument prev is zero for the first
// line. Invalid UTF-8 is replaced, because encoding a line as JSON must not change it.
func NewLine(prev brig.AuditLine, e brig.Event) brig.AuditLine {
	l := brig.AuditLine{Seq: prev.Seq + 1, Event: sanitize(e), Prev: prev.Hash}
	l.Hash = HashLine(l)
	return l
}

func sanitize(e brig.Event) brig.Event {
	e.At = e.At.UTC().Round(0)
	e.Op, e.Actor, e.Tenant = toValidText(e.Op), toValidText(e.Actor), toValidText(e.Tenant)
	e.Sandbox, e.Phase, e.Kind = brig.ID(toValidText(string(e.Sandbox))), brig.Phase(toValidText(string(e.Phase))), brig.Kind(toValidText(string(e.Kind)))
	detail := map[string]string{}
	for k, v := range e.Detail {
		detail[toValidText(k)] = toValidText(v)
	}
	if e.Detail = detail; len(detail) == 0 {
		e.Detail = nil
	}
	return e
}

func toValidText(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// form identifies the byte encoding of a line. Each encoding has a different
// name, so that no line is valid in two encodings.
const form = "brig audit line 1"

// HashLine returns the hash that a line must have: SHA-256 of its fields in a fixed
// order, each preceded by its length.
func HashLine(l brig.AuditLine) [32]byte {
	b := make([]byte, 0, 512)
	put := func(parts ...string) {
		for _, s := range parts {
			b = binary.BigEndian.AppendUint32(b, uint32(len(s)))
			b = append(b, s...)
		}
	}
	put(form)
	b = binary.BigEndian.AppendUint64(b, uint64(l.Seq))
	b = append(b, l.Prev[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(l.At.Unix()))
	b = binary.BigEndian.AppendUint32(b, uint32(l.At.Nanosecond()))
	put(l.Op, l.Actor, l.Tenant, string(l.Sandbox), string(l.Phase), string(l.Kind))
	b = binary.BigEndian.AppendUint32(b, uint32(len(l.Detail)))
	for _, k := range slices.Sorted(maps.Keys(l.Detail)) {
		put(k, l.Detail[k])
	}
	return sha256.Sum256(b)
}
