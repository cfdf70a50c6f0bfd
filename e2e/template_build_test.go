package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// buildFixture is a server and a folder with a Dockerfile, for tests of brig template build.
type buildFixture struct {
	*server
	t      *testing.T
	folder string
}

func newBuildFixture(t *testing.T) *buildFixture {
	t.Helper()
	needRoot(t)
	f := &buildFixture{server: startServer(t, dataDir(t)), t: t, folder: filepath.Join(t.TempDir(), "web")}
	if err := os.MkdirAll(filepath.Join(f.folder, "src"), 0o755); err != nil {
		t.Fatal(err)
	}
	return f
}

// write writes a file of the folder.
func (f *buildFixture) write(name, text string) {
	f.t.Helper()
	if err := os.WriteFile(filepath.Join(f.folder, name), []byte(text), 0o644); err != nil {
		f.t.Fatal(err)
	}
}

// brig runs a command with a key, and returns its outputs and its exit code.
func (f *buildFixture) brig(key string, args ...string) (stdout, stderr string, code int) {
	f.t.Helper()
	cmd := exec.CommandContext(f.t.Context(), bin(f.t, "brig"), args...)
	cmd.Env = append(os.Environ(), "BRIG_URL="+f.url, "BRIG_API_KEY="+key)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); cmd.ProcessState == nil {
		f.t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// build runs brig template build as the server's admin.
func (f *buildFixture) build(args ...string) (stdout, stderr string, code int) {
	f.t.Helper()
	return f.brig(f.key, append([]string{"template", "build", f.folder}, args...)...)
}

// exec runs a command in a sandbox.
func (f *buildFixture) exec(sandbox, script string) string {
	f.t.Helper()
	out, errs, code := f.brig(f.key, "sandbox", "exec", sandbox, "--", "sh", "-c", script)
	if code != 0 {
		f.t.Fatalf("%s: %d %s", script, code, errs)
	}
	return out
}

// TestTemplateBuildCommand builds a folder with the brig command, and creates a sandbox from the template.
// A rebuild uses the steps that have not changed. Another tenant does not find the template.
//
//suite:part core
func TestTemplateBuildCommand(t *testing.T) {
	f := newBuildFixture(t)
	f.write("Dockerfile", "FROM host\nENV GREETING=hello\nWORKDIR /srv/app\nCOPY src .\nRUN echo \"$GREETING from $(id -un)\" > greeting\nRUN date +%N > made\n")
	f.write("src/file.txt", "content\n")
	f.write("src/secret.md", "not copied\n")
	f.write(".dockerignore", "**/*.md\n")
	out, errs, code := f.build("--tag", "v1", "--tag", "default")
	if code != 0 || !strings.HasPrefix(out, "web") || !strings.Contains(errs, "[6/8] RUN echo") {
		t.Fatalf("%d %s\n%s", code, out, errs)
	}
	if _, errs, code := f.brig(f.key, "sandbox", "create", "one", "--template", "web:v1"); code != 0 {
		t.Fatal(errs)
	}
	first := f.exec("one", "pwd; cat greeting file.txt; ls; echo $GREETING; id -un")
	if first != "/srv/app\nhello from root\ncontent\nfile.txt\ngreeting\nmade\nhello\nuser\n" {
		t.Errorf("the sandbox has %q", first)
	}
	made := f.exec("one", "cat made")

	t.Run("cache", func(t *testing.T) {
		out, errs, code := f.build("--json")
		if code != 0 || strings.Count(errs, "CACHED") != 8 || !strings.Contains(out, `"status": "ready"`) {
			t.Fatalf("%d %s\n%s", code, out, errs)
		}
		if _, errs, code := f.brig(f.key, "sandbox", "create", "two", "--template", "web"); code != 0 || f.exec("two", "cat made") != made {
			t.Errorf("the step ran again: %d %s", code, errs)
		}
		f.write("src/file.txt", "changed\n")
		if _, errs, code := f.build("--name", "web:v2"); code != 0 || strings.Contains(errs, "CACHED [6/8]") {
			t.Errorf("%d %s", code, errs)
		}
		if _, errs, code := f.build("--no-cache"); code != 0 || strings.Contains(errs, "CACHED") {
			t.Errorf("%d %s", code, errs)
		}
	})
	t.Run("another tenant", func(t *testing.T) {
		c := f.client()
		if _, err := c.CreateTenant(t.Context(), brig.Tenant{Name: "rival"}); err != nil {
			t.Fatal(err)
		}
		key, err := c.CreateKey(t.Context(), brig.KeySpec{Name: "rival", Tenant: "rival", Role: brig.Admin})
		if err != nil {
			t.Fatal(err)
		}
		if out, errs, code := f.brig(key.Secret, "template", "ls"); code != 0 || strings.Contains(out, "web") {
			t.Errorf("%d %s %s", code, out, errs)
		}
		for _, args := range []string{"template show web", "template logs web", "template rm web --yes", "template tag web mine", "template cancel web"} {
			if out, errs, code := f.brig(key.Secret, strings.Fields(args)...); code == 0 || !strings.Contains(errs, "not found") {
				t.Errorf("%s: %d %s %s", args, code, out, errs)
			}
		}
		if _, errs, code := f.brig(key.Secret, "sandbox", "create", "--template", "web"); code == 0 || !strings.Contains(errs, `no template "web"`) {
			t.Errorf("%d %s", code, errs)
		}
	})
	t.Run("list and remove", func(t *testing.T) {
		if out, _, _ := f.brig(f.key, "template", "ls", "--format", "{{.name}}{{with .built}}{{range .tags}} {{.tag}}{{end}}{{end}}"); !strings.Contains(out, "web default v1 v2\n") {
			t.Errorf("the list is %q", out)
		}
		if out, _, _ := f.brig(f.key, "template", "show", "web", "--format", "{{.status}}"); out != "ready\nready\nready\nready\n" {
			t.Errorf("the builds are %q", out)
		}
		for _, args := range []string{"template tag web:v2 stable", "template untag web v2", "sandbox create three --template web:stable", "template rm web --yes"} {
			if _, errs, code := f.brig(f.key, strings.Fields(args)...); code != 0 {
				t.Errorf("%s: %d %s", args, code, errs)
			}
		}
		if f.exec("three", "cat file.txt") != "changed\n" { // the sandbox outlives its template
			t.Error("the tag v2 does not refer to its build")
		}
	})
}

// TestTemplateBuildFails verifies that the command for a build that fails prints the output of the step,
// and that the end of the command ends its build.
//
//suite:part core
func TestTemplateBuildFails(t *testing.T) {
	f := newBuildFixture(t)
	f.write("Dockerfile", "FROM host\nRUN echo some output; echo a problem >&2; exit 7\n")
	out, errs, code := f.build()
	if code != 125 || out != "" || !strings.Contains(errs, "some output\n") || !strings.Contains(errs, "step 3 of the build failed") || !strings.Contains(errs, "exit status 7: some output\na problem") {
		t.Errorf("%d %s\n%s", code, out, errs)
	}
	if out, _, _ := f.brig(f.key, "template", "logs", "web"); !strings.Contains(out, "some output\n") {
		t.Errorf("the log is %q", out)
	}
	if _, errs, code := f.brig(f.key, "sandbox", "create", "--template", "web"); code == 0 || !strings.Contains(errs, "tag 'default' does not exist") {
		t.Errorf("%d %s", code, errs)
	}
	for text, want := range map[string]string{
		"FROM host\nCOPY missing /\n":    `line 2 of the Dockerfile: COPY: no file matches "missing"`,
		"FROM host\nRUN a\nFROM other\n": "line 3 of the Dockerfile: it is a second FROM",
		"FROM no-such-image\nRUN true\n": "the image of the build failed",
	} {
		f.write("Dockerfile", text)
		if _, errs, code := f.build(); code == 0 || !strings.Contains(errs, want) {
			t.Errorf("%q: %d %s", text, code, errs)
		}
	}

	f.write("Dockerfile", "FROM host\nRUN echo begins; sleep 300\n")
	cmd := exec.Command(bin(t, "brig"), "--url", f.url, "--key", f.key, "template", "build", f.folder)
	log := &outputLog{}
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(promptTimeout); !strings.Contains(log.String(), "begins\n"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the step does not begin: %s", log)
		}
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 130 {
		t.Errorf("%v: %s", err, log)
	}
	for end := time.Now().Add(promptTimeout); ; time.Sleep(10 * time.Millisecond) {
		d, err := f.client().GetTemplate(t.Context(), "web")
		if err != nil {
			t.Fatal(err)
		}
		if b := d.Builds[0]; b.Status == brig.BuildFailed && strings.Contains(b.Failure.Message, "canceled") {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the build is %+v", d.Builds[0])
		}
	}
	if page, err := f.client().List(t.Context(), brig.ListOptions{}); err != nil || len(page.Sandboxes) > 0 {
		t.Errorf("the builds have left %+v, %v", page, err)
	}
}

// TestTemplateStartCommand builds a template with a start command, which runs in its sandboxes, and uses it
// over REST.
//
//suite:part core
func TestTemplateStartCommand(t *testing.T) {
	f := newBuildFixture(t)
	f.write("Dockerfile", "FROM host\nWORKDIR /srv\nRUN echo page > index.html\nUSER user\nCMD [\"python3\", \"-m\", \"http.server\", \"8000\", \"--bind\", \"127.0.0.1\"]\n")
	const fetch = `python3 -c "import urllib.request as u; print(u.urlopen('http://127.0.0.1:8000/index.html').read().decode().strip())"`
	if _, errs, code := f.build("--name", "served", "--ready", fetch, "--memory", "384MiB", "--cpus", "0.5"); code != 0 || !strings.Contains(errs, "START python3 -m http.server") {
		t.Fatalf("%d %s", code, errs)
	}
	c := f.client()
	if _, err := c.PutSecret(t.Context(), brig.SecretChange{Name: "token", Value: []byte("s3cret")}); err != nil {
		t.Fatal(err)
	}
	box, err := c.Create(t.Context(), brig.Spec{Name: "copy", Template: "served", Secrets: []brig.SecretUse{{Name: "token"}}, TTL: 2 * time.Minute, Env: map[string]string{"A": "1"}, Labels: map[string]string{"a": "b"}})
	if err != nil {
		t.Fatal(err)
	}
	if s := box.Spec; s.Limits.Memory != 384*brig.MiB || s.Limits.CPUs != 0.5 || s.TTL != 2*time.Minute || s.FixedLease || len(s.Labels) != 1 || len(s.Egress.Rules) > 0 {
		t.Errorf("the sandbox is %+v", s)
	}
	if out := f.exec("copy", fetch+"; echo $A $TOKEN"); out != "page\n1 s3cret\n" {
		t.Errorf("the copy serves %q", out)
	}
	_, err = c.Create(t.Context(), brig.Spec{Template: "served", Workspace: brig.WorkspaceUse{Name: "w"}})
	if e := brig.AsError(err); err == nil || e.Kind != brig.InvalidArgument || e.Field != "workspace" {
		t.Errorf("a sandbox with a workspace: %v", err)
	}
}

// TestTemplateBuildWithoutServer builds templates in a data folder without a server, one on top of the
// other.
//
//suite:part core
func TestTemplateBuildWithoutServer(t *testing.T) {
	needRoot(t)
	dir, folder := dataDir(t), t.TempDir()
	run := func(args ...string) string {
		t.Helper()
		return brigCommand(t, dir, args...)
	}
	build := func(text string, args ...string) string {
		t.Helper()
		if err := os.WriteFile(filepath.Join(folder, "Dockerfile"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return run(append([]string{"template", "build", folder}, args...)...)
	}
	build("FROM host\nARG V=1\nRUN echo first $V > /first\n", "--name", "below", "--build-arg", "V=2")
	if out := build("FROM host\nRUN echo second > /second\n", "--name", "above", "--from-template", "below"); !strings.Contains(out, "FROM TEMPLATE below") {
		t.Errorf("the build prints %s", out)
	}
	run("sandbox", "create", "one", "--template", "above")
	if out := run("sandbox", "exec", "one", "cat", "/first", "/second"); out != "first 2\nsecond\n" {
		t.Errorf("the sandbox has %q", out)
	}
	if out := run("template", "ls", "--quiet"); !strings.Contains(out, "below\nabove\n") {
		t.Errorf("the templates are %q", out)
	}
	run("template", "rm", "below", "above", "--yes")
	run("sandbox", "rm", "one")
}
