package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/brig-run/brig"
)

// Labels of sandboxes that belong to E2B's API begin with hidden. Receivers do not get them.
const (
	hidden        = "brig.e2b/"
	labelTemplate = hidden + "template"
)

// e2bTypes maps the types of events to the last parts of E2B's types.
var e2bTypes = map[brig.LifecycleType]string{
	brig.LifecycleCreated: "created", brig.LifecycleUpdated: "updated", brig.LifecyclePaused: "paused", brig.LifecycleResumed: "resumed",
	brig.LifecycleCopied: "checkpointed", brig.LifecycleEnded: "killed",
}

// typePrefix is the first part of E2B's types.
const typePrefix = "sandbox.lifecycle."

// E2BType returns E2B's name of a type.
func E2BType(t brig.LifecycleType) string { return typePrefix + e2bTypes[t] }

// ParseE2BType is the inverse of E2BType.
func ParseE2BType(name string) (brig.LifecycleType, bool) {
	for t, last := range e2bTypes {
		if name == typePrefix+last {
			return t, true
		}
	}
	return "", false
}

// EventData are the details of an event.
type EventData struct {
	Metadata map[string]string `json:"sandbox_metadata"`
	Name     string            `json:"sandbox_name,omitempty"`
	Reason   string            `json:"reason,omitempty"`
	Origin   string            `json:"origin_sandbox_id,omitempty"`
}

// DataOf returns the details of an event.
func DataOf(e brig.LifecycleEvent) EventData {
	d := EventData{Metadata: map[string]string{}, Name: e.Name, Reason: e.Reason, Origin: string(e.Origin)}
	for k, v := range e.Labels {
		if !strings.HasPrefix(k, hidden) {
			d.Metadata[k] = v
		}
	}
	return d
}

// payload is the body of a delivery, in the form of E2B's webhooks.
type payload struct {
	Version       string    `json:"version"`
	ID            string    `json:"id"`
	Type          string    `json:"type"`
	EventCategory string    `json:"event_category"`
	EventLabel    string    `json:"event_label"`
	EventData     EventData `json:"event_data"`
	SandboxID     string    `json:"sandbox_id"`
	ExecutionID   string    `json:"sandbox_execution_id"`
	TemplateID    string    `json:"sandbox_template_id"`
	BuildID       string    `json:"sandbox_build_id"`
	TeamID        string    `json:"sandbox_team_id"`
	Timestamp     time.Time `json:"timestamp"`
}

// body encodes an event.
func body(tenant string, e brig.LifecycleEvent) ([]byte, error) {
	return json.Marshal(payload{
		Version: "v2", ID: e.ID, Type: E2BType(e.Type), EventCategory: "lifecycle", EventLabel: e2bTypes[e.Type], EventData: DataOf(e),
		SandboxID: string(e.Sandbox), ExecutionID: string(e.Sandbox), TemplateID: e.Labels[labelTemplate], TeamID: tenant, Timestamp: e.At.UTC(),
	})
}

// The headers of a delivery. E2BSignature has E2B's signature, which hashes the secret and the body.
// Signature has the time and the HMAC-SHA256 of the time, a dot and the body, as alerts have.
const (
	headerWebhook    = "E2b-Webhook-Id"
	headerDelivery   = "E2b-Delivery-Id"
	headerVersion    = "E2b-Signature-Version"
	E2BSignature     = "E2b-Signature"
	Signature        = "X-Brig-Signature"
	signatureVersion = "v1"
)

// SignE2B returns E2B's signature of a body.
func SignE2B(secret string, body []byte) string {
	sum := sha256.Sum256(append([]byte(secret), body...))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// Sign returns the value of the header Signature.
func Sign(secret string, at time.Time, body []byte) string {
	seconds := strconv.FormatInt(at.Unix(), 10)
	m := hmac.New(sha256.New, []byte(secret))
	m.Write([]byte(seconds + "."))
	m.Write(body)
	return "t=" + seconds + ",v1=" + hex.EncodeToString(m.Sum(nil))
}
