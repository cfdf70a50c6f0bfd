package brig

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"time"
)

// LifecycleEvent is a change of a sandbox's state. Lifecycle events are lines of the audit log, so none
// is lost in a crash, and each is written together with the change.
type LifecycleEvent struct {
	// ID is a UUID. It depends only on the line.
	ID   string
	Seq  int64 // of the line; later events have higher ones
	Type LifecycleType
	At   time.Time
	// Sandbox is the ID, and Name and Labels are those of the sandbox.
	Sandbox ID
	Name    string
	Labels  map[string]string
	// Reason is why a sandbox ended, or why it was paused or resumed without a call.
	Reason string
	// Origin is the sandbox of which a created one is a copy.
	Origin ID
}

// LifecycleType is the type of a LifecycleEvent.
type LifecycleType string

// The types of lifecycle events.
const (
	LifecycleCreated LifecycleType = "created"
	LifecycleUpdated LifecycleType = "updated" // its lease or its egress rules
	LifecyclePaused  LifecycleType = "paused"
	LifecycleResumed LifecycleType = "resumed"
	LifecycleCopied  LifecycleType = "copied"
	LifecycleEnded   LifecycleType = "ended"
)

// LifecycleTypes lists every type.
var LifecycleTypes = []LifecycleType{LifecycleCreated, LifecycleUpdated, LifecyclePaused, LifecycleResumed, LifecycleCopied, LifecycleEnded}

// EndOp is the Op of the line that records the end of a sandbox.
const EndOp = "sandbox.end"

// lifecycleOps maps the operations whose lines can be lifecycle events to their types.
var lifecycleOps = map[string]LifecycleType{
	OpCreate.Name: LifecycleCreated, OpFork.Name: LifecycleCopied, OpExtend.Name: LifecycleUpdated, OpSetEgress.Name: LifecycleUpdated,
	OpPause.Name: LifecyclePaused, OpResume.Name: LifecycleResumed, EndOp: LifecycleEnded,
}

// lifecycleID returns the ID of the event that a line with the given hash records: a UUID of version 8.
func lifecycleID(line [32]byte) string {
	b := sha256.Sum256(append([]byte("lifecycle event\x00"), line[:]...))
	b[6], b[8] = b[6]&0x0f|0x80, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:16])
}

// LifecycleOf returns the lifecycle event that a line records, if it records one.
func LifecycleOf(l AuditLine) (LifecycleEvent, bool) {
	kind, ok := lifecycleOps[l.Op]
	if !ok || l.Kind != "" || l.Detail[DetailUnchanged] != "" || l.Sandbox == "" || l.Phase != Finish && l.Phase != Observed {
		return LifecycleEvent{}, false
	}
	origin := ID(l.Detail[DetailOrigin])
	if kind == LifecycleCopied && origin != "" { // the line is about the copy
		kind = LifecycleCreated
	}
	e := LifecycleEvent{
		ID: lifecycleID(l.Hash), Seq: l.Seq, Type: kind, At: l.At, Sandbox: l.Sandbox, Name: l.Detail[DetailName],
		Labels: map[string]string{}, Origin: origin,
	}
	for _, k := range []string{DetailVerdict, DetailWhy} {
		if e.Reason == "" {
			e.Reason = l.Detail[k]
		}
	}
	for k, v := range l.Detail {
		if name, ok := strings.CutPrefix(k, DetailLabel); ok {
			e.Labels[name] = v
		}
	}
	return e, true
}

// LifecycleOps returns the operations whose lines can be events of the given types, or of all types.
func LifecycleOps(types ...LifecycleType) (out []string) {
	for op, kind := range lifecycleOps {
		if len(types) == 0 || slices.Contains(types, kind) || op == OpFork.Name && slices.Contains(types, LifecycleCreated) {
			out = append(out, op)
		}
	}
	slices.Sort(out)
	return out
}

// LifecycleQuery selects lifecycle events. Empty fields do not filter.
type LifecycleQuery struct {
	Types   []LifecycleType
	Sandbox string // ID or name
	Labels  map[string]string
	// OldestFirst reverses the order, which is the newest first.
	OldestFirst bool
	// Offset is the number of events to leave out, up to MaxLifecycleOffset.
	Offset int
	// Limit is the number of events, 1 to 100. Default: 10.
	Limit int
}

// MaxLifecycleOffset bounds the offset of a LifecycleQuery, because the server reads the events that it
// leaves out.
const MaxLifecycleOffset = 10_000

// Includes reports whether the query selects an event, apart from Offset and Limit.
func (q LifecycleQuery) Includes(e LifecycleEvent) bool {
	for k, want := range q.Labels {
		if got, ok := e.Labels[k]; !ok || got != want {
			return false
		}
	}
	return (len(q.Types) == 0 || slices.Contains(q.Types, e.Type)) && (q.Sandbox == "" || string(e.Sandbox) == q.Sandbox || e.Name == q.Sandbox)
}

// Webhook is a URL to which the server sends the lifecycle events of a tenant.
type Webhook struct {
	ID, Tenant string // ID is a UUID
	Name, URL  string
	Enabled    bool
	// Types are the types of the events. Empty means all.
	Types []LifecycleType `json:",omitzero"`
	// Labels selects events of sandboxes that have all of these labels.
	Labels           map[string]string `json:",omitzero"`
	Created, Updated time.Time
	// Secret signs the deliveries. It is set only in requests, and never stored or returned.
	Secret string `json:"-"`
	// SealedSecret is the encrypted secret.
	SealedSecret SealedKey
	// Seq is the Seq of the last line that was delivered, abandoned or skipped.
	Seq int64
	// FailingSince is the time of the first failed delivery of the next event; zero if none failed.
	FailingSince time.Time `json:",omitzero"`
	Rev          int64     // like Record.Rev
}

// WebhookChange changes a webhook. Nil fields stay unchanged.
type WebhookChange struct {
	Name, URL, Secret *string
	Enabled           *bool
	Types             []LifecycleType
}

// Delivery is the delivery of one event to a webhook.
type Delivery struct {
	// ID is a UUID, which is the same for all attempts.
	ID, Webhook, Tenant string
	Event               string // ID of the event
	Type                LifecycleType
	Sandbox             ID
	Seq                 int64
	// At is the time of the last attempt, and Attempts their number.
	At       time.Time
	Attempts int
	// Status is the receiver's last HTTP status; 0 if there was no response.
	Status   int
	Error    string `json:",omitempty"`
	Duration time.Duration
	// Delivered is false while the delivery is retried, and after it was abandoned.
	Delivered bool
}

// WebhookService lists lifecycle events, and manages the webhooks that receive them.
type WebhookService interface {
	Lifecycle(ctx context.Context, q LifecycleQuery) ([]LifecycleEvent, error)
	CreateWebhook(ctx context.Context, w Webhook) (*Webhook, error)
	Webhooks(ctx context.Context) ([]*Webhook, error)
	GetWebhook(ctx context.Context, id string) (*Webhook, error)
	UpdateWebhook(ctx context.Context, id string, c WebhookChange) (*Webhook, error)
	RemoveWebhook(ctx context.Context, id string) error
	// Deliveries returns the newest deliveries of a webhook, the newest first.
	Deliveries(ctx context.Context, id string) ([]*Delivery, error)
	// ReplayWebhook delivers the events after a time again, with the same IDs.
	ReplayWebhook(ctx context.Context, id string, since time.Time) (*Webhook, error)
}

// WebhookStore persists webhooks and their deliveries.
type WebhookStore interface {
	// PutWebhook writes a webhook and sets w.Rev. With Rev 0 it inserts the webhook. Otherwise it returns
	// FailedPrecondition if the stored Rev differs.
	PutWebhook(ctx context.Context, w *Webhook) error
	// GetWebhook returns a tenant's webhook, or NotFound.
	GetWebhook(ctx context.Context, tenant, id string) (*Webhook, error)
	// Webhooks returns a tenant's webhooks by Created, then ID. An empty tenant means all tenants.
	Webhooks(ctx context.Context, tenant string) ([]*Webhook, error)
	// DeleteWebhook deletes a webhook with its deliveries. It returns NotFound if it does not exist.
	DeleteWebhook(ctx context.Context, tenant, id string) error
	// PutDelivery writes a delivery, replaces the one with the same ID, and deletes all but the newest
	// deliveries of the webhook (see KeptDeliveries). It returns NotFound if the webhook does not exist.
	PutDelivery(ctx context.Context, d *Delivery) error
	// Deliveries returns the deliveries of a webhook, by At and Seq, the newest first.
	Deliveries(ctx context.Context, tenant, webhook string) ([]*Delivery, error)
}

// KeptDeliveries is the number of deliveries of a webhook that are stored.
const KeptDeliveries = 100
