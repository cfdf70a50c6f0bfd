package agentrun

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/provider/agentrun/agentruntest"
)

// A machine of the tests leaves no files of programs that were killed. The control is the machine
// before its end.
func TestLocalMachineRemovesFilesOfKilledPrograms(t *testing.T) {
	for _, language := range []brig.Language{brig.Python, brig.JavaScript} {
		l, err := agentruntest.NewLocal(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		code := map[brig.Language]string{brig.Python: "while True: pass", brig.JavaScript: "for (;;) {}"}[language]
		w := wrap(brig.Program{Language: language, Code: code})
		ctx, kill := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, _, err := l.Execute(ctx, string(language), w.code)
			ended <- err
		}()
		exists := func(file string) bool { _, err := os.Stat(file); return err == nil }
		for end := time.Now().Add(time.Minute); !exists(w.kept+"-out") && time.Now().Before(end); time.Sleep(time.Millisecond) {
		}
		if !exists(w.kept + "-out") {
			t.Errorf("control: %s has no file for its output", language)
		}
		kill()
		if err := <-ended; err == nil {
			t.Errorf("the program in %s was not killed", language)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"-out", "-err", "-end"} {
			if exists(w.kept + name) {
				t.Errorf("%s: %s%s is left", language, w.kept, name)
			}
		}
	}
}
