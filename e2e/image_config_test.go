package e2e

import (
	"archive/tar"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/internal/attack"
)

// TestImageEntrypoint verifies that an image's entrypoint runs on request in the image's
// directory, as the image's user, and with the image's or the caller's arguments. Other commands
// run in the image's directory, but not as the image's user.
//
//suite:part core
func TestImageEntrypoint(t *testing.T) {
	needRoot(t)
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Skip("needs busybox-static")
	}
	program, err := os.ReadFile(busybox)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer srv.Close()
	host := strings.TrimPrefix(srv.URL, "http://")
	files := layer(t, tar.Header{Name: "usr/bin/busybox", Mode: 0o755}, string(program), tar.Header{Name: "bin", Linkname: "usr/bin"}, "",
		tar.Header{Name: "usr/bin/sh", Linkname: "busybox"}, "",
		tar.Header{Name: "srv/main", Mode: 0o755}, "#!/bin/sh\necho \"$*, $(busybox id -u):$(busybox id -g), $PWD\"; busybox cat secret 2>/dev/null; busybox grep CapEff /proc/self/status; busybox touch /tmp/up\nexec busybox sleep 600\n",
		tar.Header{Name: "srv/secret", Mode: 0o600, Uid: 101, Gid: 102}, "only for user 101\n",
		tar.Header{Name: "etc/passwd", Mode: 0o644}, "root:x:0:0::/root:/bin/sh\nweb:x:101:102::/srv:/bin/sh\n")
	pushImage(t, host+"/app:1", v1.Config{User: "web", WorkingDir: "/srv", Entrypoint: []string{"/srv/main", "first"}, Cmd: []string{"usual"}}, files)
	pushImage(t, host+"/app:none", v1.Config{WorkingDir: "/nowhere"}, files)
	pushImage(t, host+"/app:root", v1.Config{User: "root", Entrypoint: []string{"/srv/main"}}, files)
	pushImage(t, host+"/app:wrong", v1.Config{Entrypoint: []string{"/srv/none\nof it"}}, files)

	e, ctx := engineWith(t, engine.Options{Templates: []brig.Template{
		{Name: "app", Image: host + "/app:1", Entrypoint: true, Ready: &brig.Command{Shell: "busybox test -e /tmp/up"}},
	}})
	for _, tag := range []string{"1", "none", "root", "wrong"} {
		if _, err := e.PullImage(ctx, brig.ImagePull{Ref: host + "/app:" + tag}, nil); err != nil {
			t.Fatal(err)
		}
	}
	const none = "CapEff:\t0000000000000000\n"
	for _, c := range []struct {
		name string
		spec brig.Spec
		want string
	}{
		{"usual", brig.Spec{Image: "1", Entrypoint: true}, "first usual, 101:102, /srv\nonly for user 101\n" + none},
		{"arguments", brig.Spec{Image: "1", Entrypoint: true, Command: &brig.Command{Argv: []string{"a b", "c"}}}, "first a b c, 101:102, /srv\nonly for user 101\n" + none},
		{"as user", brig.Spec{Image: "1", Entrypoint: true, Command: &brig.Command{User: "user", Dir: "/tmp"}}, "first usual, 1000:1000, /tmp\n"},
		{"an image that says root", brig.Spec{Image: "root", Entrypoint: true}, ", 1000:1000, /workspace\n"},
		{"template", brig.Spec{Template: "app"}, "first usual, 101:102, /srv\nonly for user 101\n" + none},
	} {
		t.Run(c.name, func(t *testing.T) {
			attack.Case(t, "ESC-10", "an entrypoint: "+c.name)
			c.spec.TTL = time.Minute
			if c.spec.Image != "" {
				c.spec.Image = host + "/app:" + c.spec.Image
			}
			box, err := e.Create(ctx, c.spec)
			if err != nil {
				t.Fatal(err)
			}
			var got string
			for end := time.Now().Add(2 * promptTimeout); !strings.Contains(got, "CapEff") && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
				r, err := e.Logs(ctx, box.Spec.Name, brig.LogOptions{})
				if err != nil {
					t.Fatal(err)
				}
				b, err := io.ReadAll(r)
				if r.Close(); err != nil {
					t.Fatal(err)
				}
				got = string(b)
			}
			if !strings.HasPrefix(got, c.want) || !strings.Contains(got, none) {
				t.Errorf("it says %q, want %q", got, c.want)
			}
			res, err := e.Exec(ctx, box.Spec.Name, brig.Command{Shell: "busybox id -u; pwd"}, brig.IO{})
			if err != nil || !strings.HasPrefix(string(res.Stdout.Head), "1000\n/") {
				t.Errorf("a command: %q, %v", res.Stdout.Head, err)
			}
			// The control: a command runs as root if the caller requests root.
			res, err = e.Exec(ctx, box.Spec.Name, brig.Command{Shell: "busybox id -u", User: "root"}, brig.IO{})
			if err != nil || string(res.Stdout.Head) != "0\n" {
				t.Errorf("as root: %q, %v", res.Stdout.Head, err)
			} else {
				attack.RecordMutant("ESC-10", "a command as root in "+c.name, "the refusal to be root by an image's word", true)
			}
			if err := e.Remove(ctx, box.Spec.Name); err != nil {
				t.Error(err)
			}
		})
	}
	for _, c := range []struct {
		spec  brig.Spec
		field string
	}{
		{brig.Spec{Image: "none", Entrypoint: true}, "entrypoint"},
		{brig.Spec{Image: "1", Entrypoint: true, Command: &brig.Command{Shell: "x"}}, "shell"},
		{brig.Spec{Image: "1", Command: &brig.Command{Argv: []string{"sh"}, User: "0:0"}}, "user"},
		{brig.Spec{Image: "1", User: "web"}, "default_user"},
	} {
		c.spec.Image = host + "/app:" + c.spec.Image
		if _, err := e.Create(ctx, c.spec); brig.AsError(err).Field != c.field || brig.KindOf(err) != brig.InvalidArgument {
			t.Errorf("%+v: %v", c.spec, err)
		}
	}
	box, err := e.Create(ctx, brig.Spec{Image: host + "/app:wrong", Entrypoint: true, TTL: time.Minute})
	if err == nil { // the error occurs only when the program is started in the sandbox
		for end := time.Now().Add(2 * promptTimeout); box.State != brig.Ended && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			if box, err = e.Get(ctx, string(box.ID)); err != nil {
				t.Fatal(err)
			}
		}
		if box.Exit == nil || box.Exit.Code == 0 {
			t.Errorf("a program that is not there: %+v", box)
		}
	}
}
