package audit

import (
	"encoding/hex"
	"fmt"
	"time"

	"github.com/brig-run/brig"
)

// Line is the JSON form of a line in the REST API and in an export.
type Line struct {
	Seq     int64             `json:"seq" doc:"number of the record in the tenant's log, from 1"`
	Time    time.Time         `json:"time"`
	Op      string            `json:"op"`
	Phase   string            `json:"phase" doc:"intent, outcome, refused or observed"`
	Kind    string            `json:"kind,omitempty" doc:"kind of the error, if any"`
	Tenant  string            `json:"tenant"`
	Actor   string            `json:"actor"`
	Sandbox string            `json:"sandbox,omitempty" doc:"ID of the sandbox"`
	Detail  map[string]string `json:"detail,omitempty"`
	Prev    string            `json:"prev" doc:"hash of the previous record"`
	Hash    string            `json:"hash" doc:"SHA-256 of the record's other fields"`
}

// FromLine returns the JSON form of l.
func FromLine(l brig.AuditLine) Line {
	return Line{
		Seq: l.Seq, Time: l.At, Op: l.Op, Phase: string(l.Phase), Kind: string(l.Kind), Tenant: l.Tenant, Actor: l.Actor,
		Sandbox: string(l.Sandbox), Detail: l.Detail, Prev: hex.EncodeToString(l.Prev[:]), Hash: hex.EncodeToString(l.Hash[:]),
	}
}

// Domain converts l to a domain line.
func (l Line) Domain() (out brig.AuditLine, err error) {
	out = brig.AuditLine{Seq: l.Seq, Event: brig.Event{
		At: l.Time.UTC(), Op: l.Op, Phase: brig.Phase(l.Phase), Kind: brig.Kind(l.Kind), Tenant: l.Tenant, Actor: l.Actor,
		Sandbox: brig.ID(l.Sandbox), Detail: l.Detail,
	}}
	if err = decodeHex(out.Prev[:], l.Prev); err == nil {
		err = decodeHex(out.Hash[:], l.Hash)
	}
	return out, err
}

func decodeHex(to []byte, s string) error {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(to) || hex.EncodeToString(b) != s {
		return fmt.Errorf("%q is not a hash", s)
	}
	copy(to, b)
	return nil
}

// Head is the JSON form of a head.
type Head struct {
	Tenant    string    `json:"tenant"`
	Seq       int64     `json:"seq" doc:"number of the newest record; 0 if the log is empty"`
	Hash      string    `json:"hash"`
	Time      time.Time `json:"time"`
	Key       []byte    `json:"key,omitempty" doc:"Ed25519 public key; absent if the log is not signed"`
	Signature []byte    `json:"signature,omitempty"`
}

// FromHead returns the JSON form of h.
func FromHead(h brig.AuditHead) Head {
	return Head{Tenant: h.Tenant, Seq: h.Seq, Hash: hex.EncodeToString(h.Hash[:]), Time: h.At, Key: h.Key, Signature: h.Signature}
}

// Domain converts h to a domain head.
func (h Head) Domain() (out brig.AuditHead, err error) {
	out = brig.AuditHead{Tenant: h.Tenant, Seq: h.Seq, At: h.Time.UTC(), Key: h.Key, Signature: h.Signature}
	return out, decodeHex(out.Hash[:], h.Hash)
}

// Page is the JSON form of a page.
type Page struct {
	Lines []Line `json:"lines" nullable:"false"`
	Next  int64  `json:"next" doc:"value of after for the next page; 0 on the last page"`
	Head  Head   `json:"head" doc:"head of the log at the time of the request"`
}

// FromPage returns the JSON form of p.
func FromPage(p *brig.AuditPage) Page {
	out := Page{Lines: make([]Line, 0, len(p.Lines)), Next: p.Next, Head: FromHead(p.Head)}
	for _, l := range p.Lines {
		out.Lines = append(out.Lines, FromLine(l))
	}
	return out
}

// Domain converts p to a domain page.
func (p Page) Domain() (*brig.AuditPage, error) {
	out := &brig.AuditPage{Next: p.Next}
	for _, l := range p.Lines {
		line, err := l.Domain()
		if err != nil {
			return nil, err
		}
		out.Lines = append(out.Lines, line)
	}
	var err error
	out.Head, err = p.Head.Domain()
	return out, err
}
