package audit

import (
	"encoding/hex"
	"fmt"
	"time"

	"github.com/brig-run/brig"
)

// Line is a line's form in JSON: of the REST API, and in an export.
type Line struct {
	Seq     int64             `json:"seq" doc:"counts the tenant's lines, from 1"`
	Time    time.Time         `json:"time"`
	Op      string            `json:"op"`
	Phase   string            `json:"phase" doc:"intent, outcome, refused or observed"`
	Kind    string            `json:"kind,omitempty" doc:"of the error, if there was one"`
	Tenant  string            `json:"tenant"`
	Actor   string            `json:"actor"`
	Sandbox string            `json:"sandbox,omitempty" doc:"its id"`
	Detail  map[string]string `json:"detail,omitempty"`
	Prev    string            `json:"prev" doc:"hash of the line before"`
	Hash    string            `json:"hash" doc:"SHA-256 of all of the above"`
}

// FromLine returns l's form.
func FromLine(l brig.AuditLine) Line {
	return Line{
		Seq: l.Seq, Time: l.At, Op: l.Op, Phase: string(l.Phase), Kind: string(l.Kind), Tenant: l.Tenant, Actor: l.Actor,
		Sandbox: string(l.Sandbox), Detail: l.Detail, Prev: hex.EncodeToString(l.Prev[:]), Hash: hex.EncodeToString(l.Hash[:]),
	}
}

// Noun returns the line that l is the form of.
func (l Line) Noun() (out brig.AuditLine, err error) {
	out = brig.AuditLine{Seq: l.Seq, Event: brig.Event{
		At: l.Time.UTC(), Op: l.Op, Phase: brig.Phase(l.Phase), Kind: brig.Kind(l.Kind), Tenant: l.Tenant, Actor: l.Actor,
		Sandbox: brig.ID(l.Sandbox), Detail: l.Detail,
	}}
	if err = unhex(out.Prev[:], l.Prev); err == nil {
		err = unhex(out.Hash[:], l.Hash)
	}
	return out, err
}

func unhex(to []byte, s string) error {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(to) || hex.EncodeToString(b) != s {
		return fmt.Errorf("%q is not a hash", s)
	}
	copy(to, b)
	return nil
}

// Head is a head's form in JSON.
type Head struct {
	Tenant    string    `json:"tenant"`
	Seq       int64     `json:"seq" doc:"of the newest line; 0 when there is none"`
	Hash      string    `json:"hash"`
	Time      time.Time `json:"time"`
	Key       []byte    `json:"key,omitempty" doc:"Ed25519; absent when nobody signs"`
	Signature []byte    `json:"signature,omitempty"`
}

// FromHead returns h's form.
func FromHead(h brig.AuditHead) Head {
	return Head{Tenant: h.Tenant, Seq: h.Seq, Hash: hex.EncodeToString(h.Hash[:]), Time: h.At, Key: h.Key, Signature: h.Signature}
}

// Noun returns the head that h is the form of.
func (h Head) Noun() (out brig.AuditHead, err error) {
	out = brig.AuditHead{Tenant: h.Tenant, Seq: h.Seq, At: h.Time.UTC(), Key: h.Key, Signature: h.Signature}
	return out, unhex(out.Hash[:], h.Hash)
}

// Page is a page's form in JSON.
type Page struct {
	Lines []Line `json:"lines" nullable:"false"`
	Next  int64  `json:"next" doc:"what after is for the next page; 0 on the last"`
	Head  Head   `json:"head" doc:"where the whole log stood"`
}

// FromPage returns p's form.
func FromPage(p *brig.AuditPage) Page {
	out := Page{Lines: make([]Line, 0, len(p.Lines)), Next: p.Next, Head: FromHead(p.Head)}
	for _, l := range p.Lines {
		out.Lines = append(out.Lines, FromLine(l))
	}
	return out
}

// Noun returns the page that p is the form of.
func (p Page) Noun() (*brig.AuditPage, error) {
	out := &brig.AuditPage{Next: p.Next}
	for _, l := range p.Lines {
		line, err := l.Noun()
		if err != nil {
			return nil, err
		}
		out.Lines = append(out.Lines, line)
	}
	var err error
	out.Head, err = p.Head.Noun()
	return out, err
}
