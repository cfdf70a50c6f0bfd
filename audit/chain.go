// Package audit makes a chain of the audit log's events, and finds out whether
// somebody changed one. Stores link what they are given, in the transaction
// that writes it; whoever has lines can verify them without any store.
//
// It also has the form in which lines leave: JSON, one line each.
package audit

import (
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"
	"strings"

	"github.com/brig-run/brig"
)

// Link returns the line of an event that comes behind prev, which is zero for
// the first. What is not text is made so: a line must survive being written
// as JSON.
func Link(prev brig.AuditLine, e brig.Event) brig.AuditLine {
	l := brig.AuditLine{Seq: prev.Seq + 1, Event: clean(e), Prev: prev.Hash}
	l.Hash = Sum(l)
	return l
}

func clean(e brig.Event) brig.Event {
	e.At = e.At.UTC().Round(0)
	e.Op, e.Actor, e.Tenant = text(e.Op), text(e.Actor), text(e.Tenant)
	e.Sandbox, e.Phase, e.Kind = brig.ID(text(string(e.Sandbox))), brig.Phase(text(string(e.Phase))), brig.Kind(text(string(e.Kind)))
	detail := map[string]string{}
	for k, v := range e.Detail {
		detail[text(k)] = text(v)
	}
	if e.Detail = detail; len(detail) == 0 {
		e.Detail = nil
	}
	return e
}

func text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// form names the way in which a line becomes bytes. Another way has another
// name, so that no line can be read in two ways.
const form = "brig audit line 1"

// Sum returns the hash that a line must have: SHA-256 of its fields in a fixed
// order, each behind its length.
func Sum(l brig.AuditLine) [32]byte {
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
