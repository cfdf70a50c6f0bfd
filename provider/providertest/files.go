package providertest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/brig-run/brig"
)

const artifacts = "/workspace/artifacts"

func testPutAndCollect(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	big := bytes.Repeat([]byte{0, 1, 2, 0xff}, 512<<10) // larger than one frame
	files := []brig.File{
		{Path: "a.csv", Data: []byte("x,y\n")}, {Path: "b.json", Data: []byte("{}"), Mode: 0o600},
		{Path: "big.png", Data: big}, {Path: "note.txt", Data: []byte("not one of ours")},
	}
	if err := in.Put(t.Context(), artifacts, files); err != nil {
		t.Fatal(err)
	}
	got, skipped, err := in.Collect(t.Context(), artifacts)
	if err != nil || len(skipped) != 0 || len(got) != 3 {
		t.Fatalf("collected %d files, skipped %q, %v", len(got), skipped, err)
	}
	slices.SortFunc(got, func(a, b brig.File) int { return strings.Compare(a.Path, b.Path) })
	for i, f := range got {
		if f.Path != files[i].Path || !bytes.Equal(f.Data, files[i].Data) {
			t.Errorf("file %d: %q with %d bytes, want %q with %d", i, f.Path, len(f.Data), files[i].Path, len(files[i].Data))
		}
	}
	if got, skipped, err := in.Collect(t.Context(), "/workspace/nothing"); len(got)+len(skipped) != 0 || err != nil {
		t.Errorf("of a directory that is not there: %v, %v, %v", got, skipped, err)
	}
	if !h.Real {
		return
	}
	// Files belong to the user, in directories that belong to the user.
	if err := in.Put(t.Context(), "/workspace", []brig.File{{Path: "new/dir/run.sh", Data: []byte("echo ran"), Mode: 0o755}}); err != nil {
		t.Fatal(err)
	}
	if a := run(t, in, script("stat -c '%u:%g %a' new/dir new/dir/run.sh artifacts/b.json; sh new/dir/run.sh; touch new/dir/x")); a.out != "1000:1000 755\n1000:1000 755\n1000:1000 600\nran\n" {
		t.Errorf("%q, %q", a.out, a.err)
	}
}

// testPutIsConfined checks that Put rejects every kind of path that leads out
// of its directory.
func testPutIsConfined(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	if a := run(t, in, script("ln -s /etc out; ln -s /tmp/target file; ln -s ../../tmp up; mkdir real")); a.ExitCode != 0 {
		t.Fatalf("%+v", a)
	}
	for _, p := range []string{
		"../x", "../../tmp/target", "/tmp/target", "out/passwd", "out/new", "file", "up/target", "real/../../x",
		"a\x00b", strings.Repeat("n", 300), "", ".", "real",
	} {
		err := in.Put(t.Context(), "/workspace", []brig.File{{Path: p, Data: []byte("planted")}})
		if brig.KindOf(err) != brig.InvalidArgument {
			t.Errorf("put %.20q: %v", p, err)
		}
	}
	if err := in.Put(t.Context(), "/workspace", []brig.File{{Path: "real/in/side", Data: []byte("fine")}}); err != nil {
		t.Errorf("inside: %v", err)
	}
	a := run(t, in, script("ls /tmp; grep -l planted /etc/* /x 2>/dev/null; cat real/in/side"))
	if a.out != "fine" {
		t.Errorf("planted: %q", a.out)
	}
}

// testPutIsAtomic checks that a program that reads a file during its
// replacement gets either the complete old or the complete new content. An
// interpreter may load a driver while another interpreter starts.
func testPutIsAtomic(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	put := func() error {
		return in.Put(t.Context(), "/workspace", []brig.File{{Path: "driver", Data: bytes.Repeat([]byte("x"), 100_000)}})
	}
	if err := put(); err != nil {
		t.Fatal(err)
	}
	read, done := make(chan execResult, 1), make(chan error, 1)
	go func() {
		a, err := try(t.Context(), in, newExecID(), script(`i=0; while [ $i -lt 200 ]; do wc -c <driver; i=$((i+1)); done | sort | uniq -c`))
		read <- a
		done <- err
	}()
	for {
		select {
		case a := <-read:
			if err := <-done; err != nil {
				t.Error(err)
			}
			if strings.Fields(a.out + " ?")[0] != "200" {
				t.Errorf("programs saw these sizes, each so often: %q %q", a.out, a.err)
			}
			if a := run(t, in, script("ls -A /workspace")); a.out != "driver\n" {
				t.Errorf("beside the file is %q", a.out)
			}
			return
		default:
			if err := put(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// testCollectSkipsOthers checks that links, hidden and empty files, devices
// and directories are not artifacts.
func testCollectSkipsOthers(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	if a := run(t, in, script(`mkdir artifacts && cd artifacts && echo secret > /tmp/secret.csv &&
		echo 1 > plain.csv && echo 1 > UPPER.CSV && echo 1 > .hidden.csv && : > empty.csv && ln -s /tmp/secret.csv link.csv &&
		ln -s plain.csv inner.csv && mkfifo pipe.csv && mkdir dir.csv && echo 1 > dir.csv/deep.csv && echo 1 > program.exe && ln -s /etc etc`)); a.ExitCode != 0 {
		t.Fatalf("%+v", a)
	}
	got, skipped, err := in.Collect(t.Context(), artifacts)
	var names []string
	for _, f := range got {
		names = append(names, f.Path)
	}
	if err != nil || strings.Join(names, " ") != "UPPER.CSV plain.csv" || len(skipped) != 0 {
		t.Errorf("collected %q, skipped %q, %v", names, skipped, err)
	}
	if a := run(t, in, script("rm -r artifacts; ln -s /tmp artifacts")); a.ExitCode != 0 {
		t.Fatalf("%+v", a)
	}
	// The program owns the directory and may replace it by a link. The link
	// leads only to files of the sandbox, never to files of the host.
	if _, _, err := in.Collect(t.Context(), artifacts); err != nil && brig.KindOf(err) != brig.InvalidArgument {
		t.Errorf("of a link: %v", err)
	}
}

func testCollectIsBounded(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	n := brig.MaxArtifacts + 5
	a := run(t, in, script(fmt.Sprintf(`mkdir artifacts && cd artifacts && for i in $(seq 10 %d); do echo $i > f$i.csv; done;
		head -c %d /dev/zero > aa-large.csv; head -c %d /dev/zero > ab-just.csv`, 9+n, brig.MaxArtifactSize+1, brig.MaxArtifactSize)))
	if a.ExitCode != 0 {
		t.Fatalf("%+v", a)
	}
	got, skipped, err := in.Collect(t.Context(), artifacts)
	if err != nil || len(got) != brig.MaxArtifacts || len(skipped) != 2+5 {
		t.Fatalf("collected %d, skipped %q, %v", len(got), skipped, err)
	}
	if !slices.Contains(skipped, "aa-large.csv") || len(got[0].Data) != brig.MaxArtifactSize {
		t.Errorf("skipped %q; the first has %d bytes", skipped, len(got[0].Data))
	}
}
