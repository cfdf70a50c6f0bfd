package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moby/moby/client"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/image"
)

func packInto(t *testing.T, dir string) error {
	cmd := exec.Command("../.ci/package", filepath.Dir(bin(t, "brig")), dir)
	cmd.Stderr = os.Stderr
	// Now is no part of it.
	cmd.Env = append(os.Environ(), "TZ=Asia/Tokyo", "LC_ALL=C.UTF-8")
	return cmd.Run()
}

// The package and the image, made once, and all that is said of them.
//
//suite:part install full
func TestPackages(t *testing.T) {
	needRoot(t)
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Skip("no dpkg-deb: packages are made on Debian")
	}
	dir := t.TempDir()
	if err := packInto(t, dir); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]func(*testing.T, string){
		"contents": packageContents, "reproducible": packageAgain, "unit": packageUnit, "image": packageImage, "wheel": packageWheel, "guide": packageGuide,
	} {
		t.Run(name, func(t *testing.T) { test(t, dir) })
	}
}

// debOf is the Debian package in a folder.
func debOf(t *testing.T, dir string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "brig_*.deb"))
	if err != nil || len(found) != 1 {
		t.Fatalf("packages in %s: %v, %v", dir, found, err)
	}
	return found[0]
}

// output is what a command says, if it succeeds.
func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
	return string(out)
}

// wheelOf is the wheel of the Python package in a folder.
func wheelOf(t *testing.T, dir string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "brig-*.whl"))
	if err != nil || len(found) != 1 {
		t.Fatalf("wheels in %s: %v, %v", dir, found, err)
	}
	return found[0]
}

// The wheel installs where there is no network but for its one dependency, and
// says that it is typed.
func packageWheel(t *testing.T, dir string) {
	site := t.TempDir()
	output(t, "python3", "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", site, wheelOf(t, dir))
	if _, err := os.Stat(filepath.Join(site, "brig/py.typed")); err != nil {
		t.Error(err)
	}
	about, err := filepath.Glob(filepath.Join(site, "brig-*.dist-info/METADATA"))
	if err != nil || len(about) != 1 {
		t.Fatalf("metadata: %v, %v", about, err)
	}
	b, err := os.ReadFile(about[0])
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(b, []byte("\nRequires-Dist: ")); n != 1 || !bytes.Contains(b, []byte("\nRequires-Dist: httpx ")) {
		t.Errorf("it needs more than httpx: %s", b)
	}
}

// What is in the package, and that it works.
func packageContents(t *testing.T, dir string) {
	deb := debOf(t, dir)
	list := output(t, "dpkg-deb", "-c", deb)
	for name, mode := range map[string]string{
		"./usr/bin/brig": "-rwxr-xr-x root/root", "./etc/brig/brig.yaml": "-rw------- root/root",
		"./usr/lib/systemd/system/brig.service": "-rw-r--r-- root/root", "./usr/share/doc/brig/copyright": "-rw-r--r-- root/root",
		"./usr/share/doc/brig/guides/deployment.md": "-rw-r--r-- root/root",
	} {
		found := false
		for line := range strings.Lines(list) {
			found = found || strings.HasPrefix(line, mode) && strings.HasSuffix(strings.TrimSpace(line), " "+name)
		}
		if !found {
			t.Errorf("no %s with %s in\n%s", name, mode, list)
		}
	}
	if s := output(t, "dpkg-deb", "-I", deb, "conffiles"); s != "/etc/brig/brig.yaml\n" {
		t.Errorf("conffiles %q", s)
	}
	root := t.TempDir()
	output(t, "dpkg-deb", "-x", deb, root)
	program := filepath.Join(root, "usr/bin/brig")
	if s := output(t, program, "version"); !strings.Contains(s, "gvisor v0") {
		t.Errorf("it says %q", s)
	}
	licences, err := os.ReadFile(filepath.Join(root, "usr/share/doc/brig/copyright"))
	if err != nil || !bytes.Contains(licences, []byte("gvisor.dev/gvisor v0")) || !bytes.Contains(licences, []byte("Apache License")) {
		t.Errorf("licences: %d bytes, %v", len(licences), err)
	}
	srv := launchServer(t, program, nil, t.TempDir(), "--config", filepath.Join(root, "etc/brig/brig.yaml"), "--pool", "0")
	srv.await()
	if status, body := srv.do("POST", "/v1/run", `{"language":"python","code":"print(6*7)"}`); status != 200 || !strings.Contains(body, `"42\n"`) {
		t.Errorf("%d %s", status, body)
	}
}

// The same sources give the same bytes.
func packageAgain(t *testing.T, dir string) {
	again := t.TempDir()
	if err := packInto(t, again); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{filepath.Base(debOf(t, dir)), "brig-image.tar", filepath.Base(wheelOf(t, dir))} {
		a, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(again, name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(a, b) {
			t.Errorf("%s is another one the second time", name)
		}
	}
}

// What the unit takes from the server, no sandbox needs: programs run under the
// same bounding set and without new privileges.
func packageUnit(t *testing.T, dir string) {
	root := t.TempDir()
	output(t, "dpkg-deb", "-x", debOf(t, dir), root)
	unit := filepath.Join(root, "usr/lib/systemd/system/brig.service")
	if _, err := exec.LookPath("systemd-analyze"); err == nil {
		b, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		// The program is not where the package would put it.
		here := filepath.Join(t.TempDir(), "brig.service")
		if err := os.WriteFile(here, bytes.ReplaceAll(b, []byte("=/usr/bin/brig "), []byte("="+bin(t, "brig")+" ")), 0o600); err != nil {
			t.Fatal(err)
		}
		out, _ := exec.CommandContext(t.Context(), "systemd-analyze", "verify", "--man=no", here).CombinedOutput()
		if strings.Contains(string(out), "brig.service") { // the machine's own units may be wrong
			t.Errorf("systemd-analyze: %s", out)
		}
	}
	b, err := os.ReadFile(unit)
	if err != nil {
		t.Fatal(err)
	}
	var taken []string
	for line := range strings.Lines(string(b)) {
		if set, ok := strings.CutPrefix(line, "CapabilityBoundingSet=~"); ok {
			taken = strings.Fields(set)
		}
	}
	if len(taken) == 0 || !bytes.Contains(b, []byte("\nNoNewPrivileges=yes\n")) {
		t.Fatal("the unit takes nothing")
	}
	set := ""
	for _, c := range taken {
		set += ",-" + strings.ToLower(strings.TrimPrefix(c, "CAP_"))
	}
	args := []string{"--no-new-privs", "--bounding-set", set[1:], bin(t, "brig"), "--data-dir", t.TempDir(), "run"}
	if s := output(t, "setpriv", append(args, "--", "uname", "-r")...); !strings.Contains(s, "gvisor") {
		t.Errorf("a command says %q", s)
	}
	if s := output(t, "setpriv", append(args, "--memory", "64MiB", "-c", "print(6*7)")...); s != "42\n" {
		t.Errorf("a program says %q", s)
	}
}

// The container image is one, for Brig's own reader too.
func packageImage(t *testing.T, dir string) {
	store, err := image.Open(image.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(filepath.Join(dir, "brig-image.tar"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	img, err := store.Import(t.Context(), "brig", f, func(brig.Progress) {})
	if err != nil {
		t.Fatal(err)
	}
	r, err := store.Root(img.Digest)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"usr/bin/brig", "etc/ssl/certs/ca-certificates.crt", "usr/share/zoneinfo/Europe/Berlin"} {
		if _, err := os.Stat(filepath.Join(r.Dir, name)); err != nil {
			t.Error(err)
		}
	}
}

// ground is a file system over this machine's own, in which a package can be
// installed and which is gone when its process ends.
const ground = `set -e
mount -t tmpfs none "$BRIG_GROUND"
cd "$BRIG_GROUND" && mkdir up work root
mount -t overlay overlay -o "lowerdir=/,upperdir=$BRIG_GROUND/up,workdir=$BRIG_GROUND/work" "$BRIG_GROUND/root"
for d in proc sys dev tmp; do mount --rbind /$d "$BRIG_GROUND/root/$d"; done
mkdir -p "$BRIG_GROUND/root/var/lib/brig" && mount -t tmpfs none "$BRIG_GROUND/root/var/lib/brig"
status=0
cd root && pivot_root . . && umount -l . # in a chroot nobody makes user namespaces
(cd "$HOME" && bash "$1") || status=$?
[ ! -f /var/lib/brig/pid ] || kill "$(cat /var/lib/brig/pid)" 2>/dev/null || true
exit $status
`

// The guide is followed from the installation on, in a file system of its own.
func packageGuide(t *testing.T, dir string) {
	lab := startDocker(t)
	if _, err := lab.api.ImageTag(t.Context(), client.ImageTagOptions{Source: lab.image, Target: "python:3.11-slim"}); err != nil {
		t.Fatal(err)
	}
	work := t.TempDir()
	for _, name := range []string{debOf(t, dir), filepath.Join(dir, "brig-image.tar")} {
		if err := os.Link(name, filepath.Join(work, filepath.Base(name))); err != nil {
			t.Fatal(err)
		}
	}
	g := guide{
		page: "deployment.md", addr: freeAddr(t), dir: work,
		shell: []string{"unshare", "-m", "--propagation", "private", "bash", "-c", ground, "ground"},
		env:   []string{"DOCKER_HOST=" + lab.host, "BRIG_GROUND=" + t.TempDir(), "HOME=" + work, "BRIG_DATA_DIR=", "SYSTEMD_OFFLINE=1"},
	}
	// What systemd would do: the unit's command, at the test's address.
	g.after = map[string]string{
		"systemctl start": `$(sed -n 's/^ExecStart=//p' /usr/lib/systemd/system/brig.service) --listen ` + g.addr + ` &
echo $! > /var/lib/brig/pid
for i in $(seq 150); do curl -sf http://` + g.addr + `/readyz && break; sleep 0.2; done`,
		"dpkg -r": `kill $(cat /var/lib/brig/pid); for i in $(seq 100); do kill -0 $(cat /var/lib/brig/pid) || break; sleep 0.1; done`,
	}
	g.run(t)
}
