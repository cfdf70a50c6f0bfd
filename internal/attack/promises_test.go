package attack_test

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/brig-run/brig/internal/attack"
)

// TestSecurityClaimsAreTested checks that SECURITY.md lists exactly the classes
// of attacks that the tests cover.
func TestSecurityClaimsAreTested(t *testing.T) {
	b, err := os.ReadFile("../../SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, c := range attack.Catalogue() {
		if slices.Contains(ids, c.ID) {
			t.Errorf("%s is in the catalogue twice", c.ID)
		}
		ids = append(ids, c.ID)
	}
	spoken := map[string]bool{}
	// Accept ESC-01, ESC-01..05 and "ESC-01 to ESC-08".
	for _, m := range regexp.MustCompile(`([A-Z]{2,3})-(\d\d)(?:(?:\.\.| to ([A-Z]{2,3})-)(\d\d))?`).FindAllStringSubmatch(string(b), -1) {
		first, last := m[1]+"-"+m[2], m[1]+"-"+m[2]
		if m[4] != "" {
			last = m[1] + "-" + m[4]
		}
		if !slices.Contains(ids, first) || !slices.Contains(ids, last) || m[3] != "" && m[3] != m[1] {
			t.Errorf("SECURITY.md speaks of %s, which is not in the catalogue", m[0])
		}
		for _, id := range ids {
			if id >= first && id <= last {
				spoken[id] = true
			}
		}
	}
	for _, id := range ids {
		if !spoken[id] {
			t.Errorf("SECURITY.md does not speak of %s", id)
		}
	}
}
