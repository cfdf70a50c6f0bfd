package tool

import (
	"bytes"
	"crypto/sha1" //nolint:gosec // version 5 UUIDs use it
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"github.com/brig-run/brig"
)

// OrganizationID returns the organization ID of a tenant for Letta's clients. It
// depends only on the tenant's name.
func OrganizationID(tenant string) string {
	sum := sha1.Sum([]byte("brig.tenant\x00" + tenant)) //nolint:gosec // same reason as above
	sum[6], sum[8] = sum[6]&0x0f|0x50, sum[8]&0x3f|0x80
	h := hex.EncodeToString(sum[:16])
	return "org-" + strings.Join([]string{h[:8], h[8:12], h[12:16], h[16:20], h[20:]}, "-")
}

// Fingerprint returns the fingerprint of a setup. Setups that run tools identically
// have the same fingerprint. It excludes variables, because every call includes
// them.
func Fingerprint(s *brig.ToolSetup) (string, error) {
	// Decode the configuration and encode it again to sort the keys.
	var config any
	d := json.NewDecoder(bytes.NewReader(s.Config))
	d.UseNumber()
	if err := d.Decode(&config); err != nil {
		return "", fmt.Errorf("read configuration: %w", err)
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(map[string]any{"type": s.Kind, "organization_id": OrganizationID(s.Tenant), "config": config})
	if err != nil {
		return "", fmt.Errorf("encode configuration: %w", err)
	}
	sum := sha256.Sum256(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
	return new(big.Int).SetBytes(sum[:]).String(), nil
}

// BoxKey returns the key of a tool sandbox. Tools with the same key may share
// sandboxes. fingerprint is the fingerprint of the setup.
func BoxKey(fingerprint string, layers ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(append([]string{fingerprint}, layers...), "\x00")))
	return hex.EncodeToString(sum[:16])
}

// Layer is a set of packages on top of an image.
type Layer struct {
	// Language is the language of the packages: Python or TypeScript.
	Language brig.Language
	Packages []string
}

// Digest returns the digest of the layer on the image with the given digest.
func (l Layer) Digest(image string) string {
	list := slices.Clone(l.Packages)
	slices.Sort(list)
	sum := sha256.Sum256([]byte(strings.Join(append([]string{"1", image, string(l.Language)}, slices.Compact(list)...), "\x00")))
	return hex.EncodeToString(sum[:])
}
