package tool

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
)

// Key signs the report of one call, which distinguishes the report from the output
// of a tool and from the reports of earlier calls. The key need not be secret from
// the called function, because the function may return any value anyway.
type Key [32]byte

// NewKey returns a key for one call.
func NewKey() (k Key) {
	_, _ = rand.Read(k[:]) // never fails
	return k
}

// String returns the key in hex, as a driver receives it.
func (k Key) String() string { return hex.EncodeToString(k[:]) }

// Report is a driver's report about a call.
type Report struct {
	// Name is the name of the called function.
	Name string `json:"name"`
	// Value is the returned value, and Text is its human-readable form. Text is
	// empty if Value is a string, which needs no other form.
	Value json.RawMessage `json:"value"`
	Text  string          `json:"text"`
	// State is the agent's state after the call, if the function received it.
	State json.RawMessage `json:"state"`
	// Failure is the error of the function, if it failed.
	Failure *Failure `json:"failure"`
}

// Failure is an exception that a function raised.
type Failure struct {
	Name      string `json:"name"`
	Message   string `json:"message"`
	Traceback string `json:"traceback"`
}

// Receiver reads reports from a channel to which the sandbox may write arbitrary
// data.
type Receiver struct {
	Key Key
	// Garbled is set if a message was not signed, or if an announced message did
	// not arrive.
	Garbled bool
}

// signedReport is a report as sent on the channel.
type signedReport struct {
	Type    string `json:"type"` // "returning" announces a report, "report" contains it
	Size    int    `json:"size"` // of the payload, in bytes
	Sum     string `json:"sum"`  // its HMAC-SHA256, in hex
	Payload string `json:"payload"`
}

// Receive returns the report in a message, or nil if the message is not a valid
// report.
func (r *Receiver) Receive(message []byte) *Report {
	if len(bytes.TrimSpace(message)) == 0 {
		return nil // drivers send a line break before each message
	}
	before := r.Garbled
	r.Garbled = true
	var m signedReport
	if json.Unmarshal(message, &m) != nil || m.Type != "report" || m.Size != len(m.Payload) {
		return nil
	}
	mac := hmac.New(sha256.New, r.Key[:])
	mac.Write([]byte(m.Payload)) // a hash's Write never fails
	sum, err := hex.DecodeString(m.Sum)
	if err != nil || !hmac.Equal(sum, mac.Sum(nil)) {
		return nil
	}
	report := new(Report)
	if json.Unmarshal([]byte(m.Payload), report) != nil {
		return nil
	}
	r.Garbled = before
	return report
}
