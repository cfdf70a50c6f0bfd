package tool

import (
	"bytes"
	"crypto/sha1" //nolint:gosec // a UUID of version 5 is made with it
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"github.com/brig-run/brig"
)

// Organization is what Letta's clients call a tenant: an id that is always
// the same for one name.
func Organization(tenant string) string {
	sum := sha1.Sum([]byte("brig.tenant\x00" + tenant)) //nolint:gosec // as above
	sum[6], sum[8] = sum[6]&0x0f|0x50, sum[8]&0x3f|0x80
	h := hex.EncodeToString(sum[:16])
	return "org-" + strings.Join([]string{h[:8], h[8:12], h[12:16], h[16:20], h[20:]}, "-")
}

// Fingerprint is that of a setup: two that would run tools alike have the same
// one. Variables are no part of it, since every call brings them.
func Fingerprint(s *brig.ToolSetup) (string, error) {
	// Decoded and encoded again, its keys are in order.
	var config any
	d := json.NewDecoder(bytes.NewReader(s.Config))
	d.UseNumber()
	if err := d.Decode(&config); err != nil {
		return "", fmt.Errorf("read configuration: %w", err)
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(map[string]any{"type": s.Kind, "organization_id": Organization(s.Tenant), "config": config})
	if err != nil {
		return "", fmt.Errorf("encode configuration: %w", err)
	}
	sum := sha256.Sum256(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
	return new(big.Int).SetBytes(sum[:]).String(), nil
}

// BoxKey tells boxes apart: tools with the same one may use each other's. The
// fingerprint is the setup's.
func BoxKey(fingerprint string, layers ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(append([]string{fingerprint}, layers...), "\x00")))
	return hex.EncodeToString(sum[:16])
}

// Layer is a set of packages that lie over an image.
type Layer struct {
	// Language is whose they are: Python or TypeScript.
	Language brig.Language
	Packages []string
}

// Digest tells layers apart, on an image of that digest.
func (l Layer) Digest(image string) string {
	list := slices.Clone(l.Packages)
	slices.Sort(list)
	sum := sha256.Sum256([]byte(strings.Join(append([]string{"1", image, string(l.Language)}, slices.Compact(list)...), "\x00")))
	return hex.EncodeToString(sum[:])
}
