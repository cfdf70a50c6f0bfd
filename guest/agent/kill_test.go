package agent

import (
	"os/exec"
	"testing"
	"time"
)

// A process has no environment while it starts a program, so the search is not
// complete until the process has had time to start. The search does not wait
// longer for a process that remains without an environment.
func TestSearchWaitsForStartingProcesses(t *testing.T) {
	for _, c := range []struct {
		env     []string
		waits   bool
		comment string
	}{
		{[]string{}, true, "without an environment"},
		{[]string{"BRIG_TREE=8"}, false, "of another tree"},
	} {
		t.Run(c.comment, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), "sleep", "60")
			cmd.Env = c.env
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() {
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
			}()
			for until := time.Now().Add(time.Minute); time.Now().Before(until); time.Sleep(time.Millisecond) {
				if b, err := readEnvironment(cmd.Process.Pid); err == nil && (len(b) > 0) == (len(c.env) > 0) {
					break
				}
			}
			s := search{excluded: map[int]bool{}, withoutEnv: map[int]time.Time{}}
			tree := []*pendingKill{{tag: 7, plain: true}}
			s.findTagged(tree)
			if _, waits := s.withoutEnv[cmd.Process.Pid]; waits != c.waits {
				t.Errorf("the search waits for the process: %v", waits)
			}
			if c.waits && s.excluded[cmd.Process.Pid] {
				t.Error("the search takes the process for harmless at once")
			}
			time.Sleep(startTimeout)
			s.findTagged(tree)
			if !s.excluded[cmd.Process.Pid] {
				t.Error("the search still waits for the process")
			}
		})
	}
}
