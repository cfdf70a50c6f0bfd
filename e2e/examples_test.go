package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/brig-run/brig"
)

// TestExamplesPrintDocumentedOutput verifies that every example, unmodified, prints the documented output.
//
//suite:part clients full
func TestExamplesPrintDocumentedOutput(t *testing.T) {
	needRoot(t)
	if os.Getenv("BRIG_LAB") == "" { // outside the lab, which has no network
		t.Setenv("PYTHONPATH", pythonPackage(t))
		t.Setenv("BRIG_EXAMPLES", builtExamples(t))
	}
	if !runInLab(t) {
		return
	}
	l := newEgressLab(t)
	l.name("ok.test", good)
	l.web(project(t))
	s := startServer(t, dataDir(t), "--config", writeConfig(t, "metrics: {trial: 0s}\negress: {resolver: \""+nameOne+"\"}\n"))
	figures, built := t.TempDir(), os.Getenv("BRIG_EXAMPLES")
	for _, c := range []struct {
		name string
		argv []string
		part bool // compare only the end, because the rest depends on timing
		want string
	}{
		{"analysis", []string{"python3", "-B", "../examples/python/analysis.py", figures}, false,
			"value: 12\nerror: TypeError: unsupported operand type(s) for +: 'int' and 'str'\nvalue: 1746\nfigure: figure-1.png\n"},
		{"coding", []string{"python3", "-B", "../examples/python/coding_agent.py", "http://ok.test/repo.git"}, false,
			"tests fail: FAILED (failures=1)\nattempt 1 does not help\ntests pass after attempt 2\n-    return a - b\n+    return a + b\n"},
		{"tool", []string{"python3", "-B", "../examples/python/tool_state.py"}, false,
			"{'total': 5, 'most': ['the', 2]}\n{'total': 11, 'most': ['the', 3]}\nrefused: AttributeError: 'int' object has no attribute 'lower'\n{'total': 12, 'most': ['the', 3]}\n"},
		{"explore", []string{"python3", "-B", "../examples/python/explore.py"}, true,
			"fermat: 999985999949 = 999983 * 1000003\n"},
		{"go", []string{bin(t, "test/grade")}, false, "ann: right\nbob: wrong: 8100\neve: failed: OSError\ntom: too slow\n"},
		{"typescript", []string{"node", filepath.Join(built, "typescript", "agent.js")}, false, "5\n\"é `})1(tixe.ssecorp{$`\"\nError\nSB005 timeout\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), c.argv[0], c.argv[1:]...)
			cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "PYTHONPATH=" + os.Getenv("PYTHONPATH"), "BRIG_URL=" + s.url, "BRIG_API_KEY=" + s.key}
			var errs bytes.Buffer
			cmd.Stderr = &errs
			out, err := cmd.Output()
			got := string(out)
			if err != nil || got != c.want && !(c.part && strings.HasSuffix(got, c.want)) {
				t.Errorf("%v: it prints\n%swant\n%s%s", err, got, c.want, &errs)
			}
		})
	}
	if b, err := os.ReadFile(filepath.Join(figures, "figure-1.png")); err != nil || !bytes.HasPrefix(b, []byte("\x89PNG")) || len(b) < 5000 {
		t.Errorf("the figure has %d bytes, %v", len(b), err)
	}
	if remaining, err := s.client().List(t.Context(), brig.ListOptions{}); err != nil || len(remaining.Sandboxes) != 0 {
		t.Errorf("they leave %+v, %v", remaining, err)
	}
}

// builtExamples builds the examples that need compilation.
func builtExamples(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	sdk := npm(t, "../sdk/typescript")
	tsc := filepath.Join(sdk, "node_modules", "typescript", "bin", "tsc")
	output(t, "node", tsc, "-p", sdk)
	agent := filepath.Join(dir, "typescript")
	if err := os.CopyFS(agent, os.DirFS("../examples/typescript")); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(agent, "node_modules", "brig"), os.DirFS(sdk+"/")); err != nil {
		t.Fatal(err)
	}
	output(t, "node", tsc, "--target", "ES2022", "--module", "NodeNext", "--strict", "--outDir", agent, filepath.Join(agent, "agent.ts"))
	return dir
}

// project returns the directory of a git repository with a failing test.
func project(t *testing.T) string {
	t.Helper()
	return bareRepository(t, `printf 'def add(a, b):\n    return a - b\n' > sums.py
		printf 'import unittest\nfrom sums import add\n\nclass TestSums(unittest.TestCase):\n    def test_add(self):\n        self.assertEqual(add(2, 3), 5)\n' > test_sums.py`)
}
