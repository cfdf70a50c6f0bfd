package e2b

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"time"

	"github.com/brig-run/brig"
)

// SetFlushDelay changes how long output is buffered to combine it with later
// output of its stream.
func (a *API) SetFlushDelay(flushDelay time.Duration) { a.interpreter.flushDelay = flushDelay }

// SetKeepaliveInterval changes the interval of keepalives on a silent stream.
func (a *API) SetKeepaliveInterval(keepaliveInterval time.Duration) {
	a.interpreter.keepaliveInterval = keepaliveInterval
}

// These functions are exported for the tests.
var (
	ParseMetadata = parseMetadata
	LevelOf       = levelOf
)

// Sign returns the signature of a text.
func Sign(s string) string {
	sum := sha256.Sum256([]byte(s))
	return "v1_" + base64.RawStdEncoding.EncodeToString(sum[:])
}

// Token returns the token of a sandbox for a key.
func (a *API) Token(id, key string) string { return a.ports.tokens.token(id, key) }

// Receive records that a key received the token of a tenant's sandbox.
func (a *API) Receive(id, tenant, key string) { a.ports.cache.recordKey(id, tenant, key) }

// Scan returns the selected sandboxes of all pages.
func (a *API) Scan(ctx context.Context, o brig.ListOptions) ([]*brig.Sandbox, error) {
	return a.ports.scan(ctx, o)
}

// OtherKeys returns the keys of a tenant whose tokens a search compares after the keys that
// received the sandbox's token.
func (a *API) OtherKeys(ctx context.Context, id, tenant string) []string {
	return a.ports.tokens.otherKeys(ctx, id, tenant)
}

// HostTarget returns the sandbox and port in a host name.
func HostTarget(host, domain string) (id string, port int, ok bool, err error) {
	t, ok, err := parseHost(host, domain)
	return t.id, t.port, ok, err
}

// CursorRoundTrip parses a cursor and formats it again.
func CursorRoundTrip(s string) (string, error) {
	c, err := parseCursor(s)
	if err != nil {
		return "", err
	}
	return c.String(), nil
}
