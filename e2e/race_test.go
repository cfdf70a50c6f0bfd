package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/race"
)

// TestRaceDetectorStopsRacyPrograms is the control for the part "race": a data race in the agent
// ends its sandbox, and a data race in the shim or the server leaves a report in the directory
// that the suite checks.
//
//suite:part race alone
func TestRaceDetectorStopsRacyPrograms(t *testing.T) {
	needRoot(t)
	reports := t.TempDir()
	t.Setenv("GORACE", race.Options+" log_path="+filepath.Join(reports, "server"))
	t.Cleanup(func() { // after the server and its shims have ended
		for _, name := range plantedReports(race.Log + ".*") {
			os.Remove(name)
		}
	})
	s := startServer(t, dataDir(t), "--config", writeConfig(t, "pool: {size: -1}\nmetrics: {trial: 0s}\n"))
	svc := s.client()
	for _, name := range []string{"agent", "shim"} {
		if _, err := svc.Create(t.Context(), brig.Spec{Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	state := func(name string) brig.State {
		box, err := svc.Get(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		return box.State
	}

	// The agent may exit before it can respond.
	_, _ = svc.Exec(t.Context(), "agent", brig.Command{Shell: "touch " + race.Plant}, brig.IO{})
	eventually(t, "the race in the agent ends its sandbox", func() bool { return state("agent") != brig.Running })
	if got := state("shim"); got != brig.Running {
		t.Fatalf("the other sandbox is %s", got)
	}

	if err := os.WriteFile(race.Plant, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(race.Plant) })
	for who, pattern := range map[string]string{
		"server": filepath.Join(reports, "server.*"),
		"shim":   race.Log + ".*",
	} {
		eventually(t, "the race in the "+who+" is reported", func() bool { return len(plantedReports(pattern)) > 0 })
	}
}

// plantedReports returns the files with reports of planted races.
func plantedReports(pattern string) (reports []string) {
	names, _ := filepath.Glob(pattern)
	for _, name := range names {
		if text, _ := os.ReadFile(name); strings.Contains(string(text), "race.causeRace") {
			reports = append(reports, name)
		}
	}
	return reports
}
