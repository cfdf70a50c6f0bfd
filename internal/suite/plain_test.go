package suite

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestPlainTestsInDetectsRaceChecks verifies that a test counts as plain if it, or a function that
// it uses, checks less with the race detector.
func TestPlainTestsInDetectsRaceChecks(t *testing.T) {
	dir := t.TempDir()
	for name, src := range map[string]string{
		"a_test.go": `package a
func TestDirect(t *testing.T) { testenv.SkipWithRace(t, "it measures") }
func TestThroughHelper(t *testing.T) { each(t) }
func TestThroughTable(t *testing.T) { t.Run("x", measure) }
func TestOther(t *testing.T) { t.Log("SkipWithRace") }
func FuzzOther(f *testing.F) { testenv.SkipWithRace(f, "") }
`,
		"b_test.go": `package a_test
func each(t *testing.T) { measure(t) }
func measure(t *testing.T) { if testenv.RaceEnabled { return } }
func TestEndless(t *testing.T) { testenv.CheckEndlessResponse(t, 1, nil, nil) }
`,
		"a.go": `package a
func Hidden() { SkipWithRace() }
`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(src), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := plainTestsIn(dir)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(got)
	if want := []string{"TestDirect", "TestEndless", "TestThroughHelper", "TestThroughTable"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
