package e2e

import (
	"crypto/sha256"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/rest"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/internal/testenv"
	"github.com/brig-run/brig/provider/fake"
	"github.com/brig-run/brig/store/mem"
)

// schemathesis is the package of a tool that generates valid and invalid requests from an OpenAPI
// document, and checks the responses against the document.
var schemathesis = []string{"schemathesis==4.32.5"}

// TestOpenAPIFuzzed verifies that the server conforms to its OpenAPI document, for an operator
// and for a viewer: it accepts the requests that the document allows, rejects all others, returns
// documented responses, and does not log internal errors.
//
//suite:part core full
func TestOpenAPIFuzzed(t *testing.T) {
	fuzzer(t) // install the fuzzer before the subtests start
	for _, role := range []brig.Role{brig.Operator, brig.Viewer} {
		t.Run(role.String(), func(t *testing.T) {
			t.Parallel()
			url, key, log := describedServer(t, role, nil)
			out, err := fuzz(t, url, key, "--max-examples", strconv.Itoa(testenv.Size(2, 10)))
			if err != nil {
				t.Errorf("%v\n%s", err, lastOf(out, 12000))
			}
			if n := generatedIn(out); n < 3000 {
				t.Errorf("%d requests are too few to mean anything:\n%s", n, lastOf(out, 2000))
			}
			if errs := regexp.MustCompile(`(?m)^.*level=ERROR.*$`).FindAllString(log.String(), 5); errs != nil {
				t.Errorf("failures in the log:\n%s", strings.Join(errs, "\n"))
			}
		})
	}
}

// TestOpenAPIFuzzerDetectsNonconformingServer verifies that the fuzzer detects a server that does
// not conform to its document.
//
//suite:part core full
func TestOpenAPIFuzzerDetectsNonconformingServer(t *testing.T) {
	url, key, _ := describedServer(t, brig.Operator, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.Method == http.MethodPost && r.URL.Path == "/v1/workspaces": // accepts every request
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusCreated)
				_, _ = io.WriteString(w, `{"name":1}`)
			case r.URL.Path == "/v1/whoami", r.URL.Path == "/v1/secrets": // rejects every request
				http.Error(w, "oops", http.StatusBadRequest)
			default:
				next.ServeHTTP(w, r)
			}
		})
	})
	out, err := fuzz(t, url, key, "--max-examples", "2", "--phases", "examples,coverage", "--include-path", "/v1/workspaces", "--include-path", "/v1/secrets")
	if err == nil {
		t.Fatalf("nothing is found:\n%s", lastOf(out, 4000))
	}
	for _, want := range []string{"Schema-violating request accepted", "Schema-valid request rejected", "Response violates schema"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not found:\n%s", want, lastOf(out, 4000))
		}
	}
}

// describedServer starts a server with a fake provider and a key with the given role. If wrap is
// not nil, it wraps the server's handler.
func describedServer(t *testing.T, role brig.Role, wrap func(http.Handler) http.Handler) (url, key string, log *outputLog) {
	t.Helper()
	store := mem.New()
	key = "brig_" + strings.Repeat("c", 44)
	if err := store.PutTenant(t.Context(), &brig.Tenant{Name: "acme"}); err != nil {
		t.Fatal(err)
	}
	err := store.PutKey(t.Context(), brig.Key{
		Hash: sha256.Sum256([]byte(key)), ID: "kacme", Actor: brig.Actor{Name: "ann", Tenant: "acme", Role: role, Key: "kacme"},
	})
	if err != nil {
		t.Fatal(err)
	}
	log = &outputLog{}
	logger := slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	e := engine.New(t.Context(), engine.Options{
		Store: store, Provider: &fake.Provider{BuildRights: true}, Images: noImages{}, LimitRange: brig.DefaultLimitRange(), Log: logger, Keys: keyring(t), Seed: []byte("seed"),
		GrantSeed: []byte("a seed of grants that is long enough"), Workspaces: folderOf(t, t.TempDir()),
	})
	t.Cleanup(e.Close)
	service, builds := withBuilds(t, e, store)
	h := rest.New(rest.Options{Service: service, Builds: builds, Keys: e, LimitRange: brig.DefaultLimitRange(), Log: logger, Version: "v0"})
	if wrap != nil {
		h = wrap(h)
	}
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv.URL, key, log
}

// fuzzer returns the directory with schemathesis and its dependencies.
func fuzzer(t *testing.T) string {
	t.Helper()
	return cached(t, "pip", strings.Join(schemathesis, " "), func(dir string) *exec.Cmd {
		return exec.CommandContext(t.Context(), "python3", append([]string{"-m", "pip", "install", "-q", "--target", dir}, schemathesis...)...)
	})
}

// fuzz runs schemathesis on a server with the settings in e2e/openapi.
func fuzz(t *testing.T, url, key string, args ...string) (string, error) {
	t.Helper()
	packages := fuzzer(t)
	settings, err := filepath.Abs("openapi")
	if err != nil {
		t.Fatal(err)
	}
	args = append([]string{
		"-m", "schemathesis.cli", "--config-file", filepath.Join(settings, "schemathesis.toml"), "run", url + "/openapi.json",
		"-H", "Authorization: Bearer " + key, "--request-timeout", "30", "--no-color",
	}, args...)
	cmd := exec.CommandContext(t.Context(), "python3", args...)
	cmd.Dir = t.TempDir()
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "PYTHONPATH=" + packages + ":" + settings, "SCHEMATHESIS_HOOKS=hooks", "PYTHONDONTWRITEBYTECODE=1",
	}
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// generatedIn returns the number of generated requests according to a report.
func generatedIn(out string) int {
	m := regexp.MustCompile(`(\d+) generated`).FindStringSubmatch(out)
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(m[1])
	return n
}

func lastOf(s string, n int) string { return s[max(0, len(s)-n):] }

// TestOpenAPILint verifies that the document passes the recommended rules of
// Redocly and Spectral. The exceptions are in e2e/openapi, with their reasons.
//
//suite:part core full
func TestOpenAPILint(t *testing.T) {
	dir := npm(t, "openapi")
	doc, err := filepath.Abs("../docs/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(doc)
	if err != nil {
		t.Fatal(err)
	}
	// The control: the linters detect a missing operation ID.
	broken := filepath.Join(dir, "broken.json")
	if err := os.WriteFile(broken, []byte(strings.Replace(string(b), `"operationId"`, `"x-operation"`, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, lint := range [][]string{
		{"redocly", "lint", "--config", "redocly.yaml", "--max-problems", "20"},
		{"spectral", "lint", "--ruleset", "spectral.yaml", "--fail-severity", "warn"},
	} {
		run := func(doc string) (string, error) {
			cmd := exec.CommandContext(t.Context(), filepath.Join("node_modules", ".bin", lint[0]), append(lint[1:], doc)...)
			cmd.Dir = dir
			cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "REDOCLY_TELEMETRY=off", "REDOCLY_SUPPRESS_UPDATE_NOTICE=true"}
			out, err := cmd.CombinedOutput()
			return string(out), err
		}
		warned := regexp.MustCompile(`(?i)you have \d+ (warning|error)`) // Redocly succeeds in spite of warnings
		if out, err := run(doc); err != nil || warned.MatchString(out) {
			t.Errorf("%s: %v\n%s", lint[0], err, lastOf(out, 6000))
		}
		if out, err := run(broken); err == nil && !warned.MatchString(out) {
			t.Errorf("%s finds nothing in a broken document:\n%s", lint[0], out)
		}
	}
}
