package e2e

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestAbuseBench runs three cases of `brig-bench abuse` for a few seconds, and verifies that the
// attacks run, the limits hold, and no resources remain on the host. It does not measure times.
//
//suite:part hostile full
func TestAbuseBench(t *testing.T) {
	needRoot(t)
	tmp := t.TempDir()
	cmd := exec.CommandContext(t.Context(), bin(t, "brig-bench"), "--json", "abuse", "--for", "5s", "--quiet", "2s", "--case", "wrong-keys,viewer-watches,guest-disk")
	cmd.Env = append(cmd.Environ(), "TMPDIR="+tmp)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	var r struct {
		Rows []struct {
			Name, Note              string
			Count                   float64
			RSS                     float64 `json:"rss_mib"`
			Disk                    float64 `json:"disk_mib"`
			Descriptors, Goroutines float64
		}
		Criteria []json.RawMessage
	}
	if err := json.Unmarshal(out, &r); err != nil || len(r.Rows) != 3 || len(r.Criteria) != 3 {
		t.Fatalf("%v: %s", err, out)
	}
	for i, want := range []struct {
		name, note        string
		descriptors, disk float64 // the minimum of descriptors, and the maximum of disk
	}{
		{"wrong-keys", "answers 429", 1, 64},
		{"viewer-watches", "answers 200", 20, 64},
		{"guest-disk", "sandboxes", 1, 8*256*1.01 + 64},
	} {
		row := r.Rows[i]
		if row.Name != want.name || !strings.Contains(row.Note, want.note) {
			t.Errorf("%s did not attack: %q", want.name, row.Note)
		}
		if row.RSS < 10 || row.RSS > 1024 || row.Descriptors < want.descriptors || row.Descriptors > 1500 || row.Goroutines < 10 || row.Goroutines > 3000 || row.Disk > want.disk {
			t.Errorf("%+v", row)
		}
		if row.Name == "guest-disk" && row.Disk < 8 {
			t.Errorf("the sandboxes' files are not counted: %+v", row)
		}
	}
	if remaining, _ := filepath.Glob(tmp + "/*"); len(remaining) > 0 {
		t.Errorf("left: %v", remaining)
	}
}
