package tool

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
)

// Key signs what comes out of one call. A tool's output, whatever it prints and
// wherever it writes, is not signed with it, and neither is that of a call
// before. It is no secret from the function itself, which may return what it
// likes in any case.
type Key [32]byte

// NewKey returns a key for one call.
func NewKey() (k Key) {
	_, _ = rand.Read(k[:]) // never fails
	return k
}

// String is the key in the form in which a driver is given it.
func (k Key) String() string { return hex.EncodeToString(k[:]) }

// Report is what a driver says of a call.
type Report struct {
	// Name is the function that was called.
	Name string `json:"name"`
	// Value is what it returned, and Text the same as people read it; empty if
	// that is Value itself, which is a string then.
	Value json.RawMessage `json:"value"`
	Text  string          `json:"text"`
	// State is the agent's after the call, if the function was given it.
	State json.RawMessage `json:"state"`
	// Failure is how the function failed, if it did.
	Failure *Failure `json:"failure"`
}

// Failure is an exception.
type Failure struct {
	Name      string `json:"name"`
	Message   string `json:"message"`
	Traceback string `json:"traceback"`
}

// Receiver reads what comes out of a channel, on which a box may write what it
// likes.
type Receiver struct {
	Key Key
	// Garbled says that something came that nobody has signed, or that was to
	// come and did not.
	Garbled bool
}

// signed is the form in which a report comes.
type signed struct {
	Type    string `json:"type"` // "returning" before, "report"
	Size    int    `json:"size"` // of the payload, in bytes
	Sum     string `json:"sum"`  // its HMAC-SHA256, in hex
	Payload string `json:"payload"`
}

// Receive returns the report that a message is, nil if it is none.
func (r *Receiver) Receive(message []byte) *Report {
	if len(bytes.TrimSpace(message)) == 0 {
		return nil // drivers begin a line of their own
	}
	before := r.Garbled
	r.Garbled = true
	var m signed
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
