package main

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
)

func readConfig(t *testing.T, text string) (*config, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "brig.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return (&cli{configFile: file}).loadConfig()
}

// TestConfigErrorContainsField verifies that the error for an invalid file contains the field, and
// also the position if the value has the wrong type.
func TestConfigErrorContainsField(t *testing.T) {
	for text, want := range map[string]string{
		"limits:\n  default:\n    memory: -1\n":                               "[3:13] limits.default.memory: must be a size",
		"limits: {max: {disk: [1]}}":                                          "[1:22]",
		"lease: {default: 10}":                                                "[1:18] lease.default: must be a duration",
		"pool: {warm: [{image: host, count: 1, limits: {memory: lots}}]}":     "pool.warm[0].limits.memory: must be a size",
		"pool: {size: 2.7}":                                                   "[1:14] pool.size: must be a whole number",
		"quota: {sandboxes: many}":                                            "[1:20] quota.sandboxes: must be a whole number",
		"limits: {max: {processes: [1]}}":                                     "[1:27]",
		"pool: {warm: [{image: host, count: 1e3}]}":                           "pool.warm[0].count: must be a whole number",
		"lease: {default: 48h, max: 1h}":                                      "lease.default: 48h0m0s is out of bounds",
		"timeout: {default: -1s}":                                             "timeout.default: -1s is out of bounds",
		"pool: {warm: [{image: host, count: 1, limits: {memory: 1TiB}}]}":     "pool.warm[0].limits.memory: 1024GiB is out of bounds",
		"limits: {default: {cpus: -1}}":                                       "limits.cpus: the default is out of bounds",
		"workspaces: {s3: {endpoint: \"127.0.0.1:7070\", bucket: of-nobody}}": "workspaces.s3",
	} {
		_, err := readConfig(t, text)
		if e := brig.AsError(err); e == nil || e.Kind != brig.InvalidConfig || !strings.Contains(e.Message, want) || strings.Contains(e.Hint, "default -1") {
			t.Errorf("%s: %+v, want %s", text, e, want)
		}
	}
	cfg, err := readConfig(t, "lease: {default: &d 90s, max: *d}\nlimits: {default: {memory: 536870912, disk: 1.5GiB, processes: 0x40}}\npool: {size: -1}\n")
	if err != nil || cfg.Lease.Max.toDuration() != 90*time.Second || cfg.Limits.Default.Memory != 512<<20 || cfg.Limits.Default.Disk != 3<<29 ||
		cfg.Limits.Default.Processes != 64 || cfg.Pool.Size != -1 {
		t.Errorf("%+v, %v", cfg, err)
	}
}

// TestUnreadableE2BCertificateStopsServer checks that the server refuses to start if a certificate
// is unreadable. Otherwise, it would announce an address that it does not serve.
func TestUnreadableE2BCertificateStopsServer(t *testing.T) {
	cfg := &config{}
	cfg.E2B.Listen, cfg.E2B.Cert, cfg.E2B.Key = "127.0.0.1:0", "/nowhere/cert.pem", "/nowhere/key.pem"
	stop, err := (&apis{}).serveTLS(cfg, httpapi.NewLimiter(httpapi.Limits{}), nil, slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err == nil {
		stop()
	}
	if e := brig.AsError(err); e == nil || e.Kind != brig.InvalidConfig || !strings.Contains(e.Message, "e2b.cert") {
		t.Errorf("%v", err)
	}
}

// TestUnknownCommandsFail checks that an unknown command fails.
func TestUnknownCommandsFail(t *testing.T) {
	for _, args := range [][]string{{"sandbox", "delet", "one"}, {"workspace", "nope"}, {"sandbox", "context", "nope"}, {"completion", "nope"}, {"help", "nope"}, {"help", "sandbox", "nope"}} {
		var out, errs bytes.Buffer
		if code := execute(args, strings.NewReader(""), &out, &errs); code != exitUsage || !strings.Contains(errs.String(), "unknown command") {
			t.Errorf("brig %s: %d, %s%s", strings.Join(args, " "), code, out.String(), errs.String())
		}
	}
	for _, c := range []struct{ args, want string }{
		{"sandbox", "Available Commands"}, {"help", "Run code:"}, {"help sandbox", "Available Commands"},
		{"help help", "brig help [command]"}, {"help completion bash", "brig completion bash"},
	} {
		var out, errs bytes.Buffer
		if code := execute(strings.Fields(c.args), strings.NewReader(""), &out, &errs); code != 0 || !strings.Contains(out.String(), c.want) {
			t.Errorf("brig %s: %d, %s%s", c.args, code, out.String(), errs.String())
		}
	}
}

// TestInvalidDataFolderIsReportedFirst checks that an invalid data folder is reported before
// the command accesses files in it.
func TestInvalidDataFolderIsReportedFirst(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	code := execute([]string{"--data-dir", file, "--url", "", "sandbox", "ls"}, strings.NewReader(""), &out, &errs)
	if code != exitError || !strings.Contains(errs.String(), "not a directory (SB001)") {
		t.Errorf("%d, %s", code, errs.String())
	}
}

// Workspace uploads are staged in the data folder. The system's temporary directory may be a tmpfs.
// An upload of 16 GiB would then exhaust the memory.
func TestUploadsAreStagedInDataFolder(t *testing.T) {
	var c workspacesConfig
	if got := c.s3Options("/data").Staging; filepath.Dir(got) != "/data" {
		t.Errorf("uploads are staged in %q", got)
	}
}

// A template's user is one of the standard users, or consists of the IDs of another user.
func TestTemplateUserIsChecked(t *testing.T) {
	for user, ok := range map[string]bool{"user": true, "root": true, "1001:1001": true, "nobody": false, "1001": false, "0:0": false, "64999:1": false} {
		_, err := readConfig(t, fmt.Sprintf("templates: {own: {image: host, user: %q}}", user))
		if e := brig.AsError(err); (err == nil) != ok || !ok && (e.Kind != brig.InvalidConfig || !strings.HasPrefix(e.Message, "templates.own: user: ") || e.Hint == "") {
			t.Errorf("%s: %+v", user, err)
		}
	}
}
