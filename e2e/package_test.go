package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/chaos"
	"github.com/brig-run/brig/image"
	"github.com/brig-run/brig/internal/cgroup"
)

func packInto(t *testing.T, dir string) error {
	cmd := exec.Command("../.ci/package", filepath.Dir(bin(t, "brig")), dir)
	cmd.Stderr = os.Stderr
	// The result must not depend on the time zone or the locale.
	cmd.Env = append(os.Environ(), "TZ=Asia/Tokyo", "LC_ALL=C.UTF-8")
	return cmd.Run()
}

// TestPackages builds the packages and the image once, and verifies their documented properties.
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
		"contents": packageContents, "rpm": packageRPM, "archive": packageArchive, "sbom": packageSBOM, "notices": packageNotices,
		"reproducible": packageReproducibility, "unit": packageUnit, "image": packageImage, "layout": packageLayout, "wheel": packageWheel, "guide": packageGuide,
	} {
		t.Run(name, func(t *testing.T) { test(t, dir) })
	}
}

// debOf returns the path of the Debian package in a directory.
func debOf(t *testing.T, dir string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "brig_*.deb"))
	if err != nil || len(found) != 1 {
		t.Fatalf("packages in %s: %v, %v", dir, found, err)
	}
	return found[0]
}

// output returns the output of a command, which must succeed.
func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
	return string(out)
}

// wheelOf returns the path of the Python package's wheel in a directory.
func wheelOf(t *testing.T, dir string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "brig-*.whl"))
	if err != nil || len(found) != 1 {
		t.Fatalf("wheels in %s: %v, %v", dir, found, err)
	}
	return found[0]
}

// packageWheel verifies that the wheel can be installed offline, depends only on httpx, and
// declares type information.
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

// packageContents verifies the files of the package, and that its program works.
func packageContents(t *testing.T, dir string) {
	deb := debOf(t, dir)
	list := output(t, "dpkg-deb", "-c", deb)
	files := map[string]string{}
	for line := range strings.Lines(list) {
		if f := strings.Fields(line); len(f) >= 6 {
			files[strings.TrimPrefix(f[5], ".")] = f[0] + " " + f[1]
		}
	}
	for name, mode := range packagedFiles("/usr/share/zsh/vendor-completions/_brig") {
		if files[name] != mode+" root/root" {
			t.Errorf("%s has %q, want %s", name, files[name], mode)
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

// packageReproducibility verifies that the build is reproducible.
func packageReproducibility(t *testing.T, dir string) {
	second := t.TempDir()
	if err := packInto(t, second); err != nil {
		t.Fatal(err)
	}
	made, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range made {
		name := entry.Name()
		a, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(second, name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(a, b) {
			t.Errorf("%s has other bytes the second time", name)
		}
	}
}

// packageUnit verifies that sandboxes do not need the privileges that the systemd unit removes.
// It runs programs with the unit's capability bounding set and no_new_privs.
func packageUnit(t *testing.T, dir string) {
	root := t.TempDir()
	output(t, "dpkg-deb", "-x", debOf(t, dir), root)
	unit := filepath.Join(root, "usr/lib/systemd/system/brig.service")
	if _, err := exec.LookPath("systemd-analyze"); err == nil {
		b, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		// Adjust the path of the program, because the package is not installed.
		here := filepath.Join(t.TempDir(), "brig.service")
		if err := os.WriteFile(here, bytes.ReplaceAll(b, []byte("=/usr/bin/brig "), []byte("="+bin(t, "brig")+" ")), 0o600); err != nil {
			t.Fatal(err)
		}
		out, _ := exec.CommandContext(t.Context(), "systemd-analyze", "verify", "--man=no", here).CombinedOutput()
		if strings.Contains(string(out), "brig.service") { // the host's own units may have errors
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
	if match := regexp.MustCompile(`(?m)^MemoryMax=([1-9][0-9]?)%$`).FindSubmatch(b); match == nil {
		t.Error("the unit bounds no memory of the server and its shims")
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

// packageImage verifies that the container image is valid and can be imported by Brig itself.
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

// overlayScript mounts a temporary overlay over the host's file system, in which a package can be
// installed. The overlay no longer exists when the process has ended. In the overlay,
// /var/lib/brig is a link to a directory with a unique name, because the cgroup of the sandboxes
// is named after the directory and must not be that of an installed Brig.
const overlayScript = `set -e
mount -t tmpfs none "$BRIG_GROUND"
cd "$BRIG_GROUND" && mkdir up work root
mount -t overlay overlay -o "lowerdir=/,upperdir=$BRIG_GROUND/up,workdir=$BRIG_GROUND/work" "$BRIG_GROUND/root"
for d in proc sys dev tmp; do mount --rbind /$d "$BRIG_GROUND/root/$d"; done
mkdir -p "$BRIG_GROUND/root$BRIG_FOLDER" && mount -t tmpfs -o mode=755 none "$BRIG_GROUND/root$BRIG_FOLDER"
rm -rf "$BRIG_GROUND/root/var/lib/brig" && ln -s "$BRIG_FOLDER" "$BRIG_GROUND/root/var/lib/brig" # in the overlay only
status=0
cd root && pivot_root . . && umount -l . # in a chroot nobody makes user namespaces
(cd "$HOME" && bash "$1") || status=$?
[ ! -f /var/lib/brig/pid ] || kill "$(cat /var/lib/brig/pid)" 2>/dev/null || true
exit $status
`

// packageGuide runs the commands of the deployment guide, starting with the installation, in an
// overlay file system.
func packageGuide(t *testing.T, dir string) {
	lab := startDocker(t)
	if _, err := lab.api.ImageTag(t.Context(), client.ImageTagOptions{Source: lab.image, Target: "python:3.11-slim"}); err != nil {
		t.Fatal(err)
	}
	work, data := t.TempDir(), fmt.Sprintf("/var/lib/brig-test-%d-%x", os.Getpid(), time.Now().UnixNano())
	for _, name := range []string{debOf(t, dir), filepath.Join(dir, "brig-image.tar")} {
		if err := os.Link(name, filepath.Join(work, filepath.Base(name))); err != nil {
			t.Fatal(err)
		}
	}
	g := guide{
		page: "guides/deployment.md", addr: freeAddr(t), dir: work,
		shell: []string{"unshare", "-m", "--propagation", "private", "bash", "-c", overlayScript, "ground"},
		env:   []string{"DOCKER_HOST=" + lab.host, "BRIG_GROUND=" + t.TempDir(), "BRIG_FOLDER=" + data, "HOME=" + work, "BRIG_DATA_DIR=", "SYSTEMD_OFFLINE=1"},
	}
	// Instead of systemd, run the unit's command with the test's address.
	g.after = map[string]string{
		"systemctl start": `$(sed -n 's/^ExecStart=//p' /usr/lib/systemd/system/brig.service) --listen ` + g.addr + ` &
echo $! > /var/lib/brig/pid
for i in $(seq 150); do curl -sf http://` + g.addr + `/readyz && break; sleep 0.2; done`,
		"dpkg -r": `kill $(cat /var/lib/brig/pid); for i in $(seq 100); do kill -0 $(cat /var/lib/brig/pid) || break; sleep 0.1; done`,
	}
	g.run(t)
	if remaining, err := cgroup.Children(chaos.Group(data)); err != nil || len(remaining) > 0 {
		t.Errorf("the guide leaves cgroups of sandboxes on the host: %v, %v", remaining, err)
	}
}
