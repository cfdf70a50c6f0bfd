// Package planted has tests that fail in known ways, for the test of RerunFailures.
package planted

import (
	"os"
	"sync"
	"testing"
)

// try counts the runs of a test in a file that outlives the process.
func try(t *testing.T) int {
	f, err := os.OpenFile(os.Getenv("PLANTED")+"/"+t.Name(), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString("x"); err != nil {
		t.Fatal(err)
	}
	fi, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return int(fi.Size())
}

func TestSteady(t *testing.T) {}

func TestOnce(t *testing.T) {
	n := try(t)
	t.Run("case", func(t *testing.T) {
		if n == 1 {
			t.Error("the first failure, whole")
		}
	})
}

func TestTwice(t *testing.T) {
	if n := try(t); n < 3 {
		t.Errorf("failure %d", n)
	}
}

func TestAlways(t *testing.T) {
	t.Errorf("failure %d", try(t))
}

func TestEscapes(t *testing.T) {
	if try(t) > 1 {
		return
	}
	record(t, `{"id":"ESC-01","what":"planted","bad":true}`)
	t.Error("it escaped")
}

func TestControl(t *testing.T) {
	bad := "false"
	if try(t) == 1 {
		bad = "true"
		t.Error("the control is not red")
	}
	record(t, `{"id":"ESC-01","what":"planted","off":"the wall","bad":`+bad+`}`)
}

func record(t *testing.T, line string) {
	f, err := os.OpenFile(os.Getenv("BRIG_ATTACK"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(line + "\n"); err != nil {
		t.Fatal(err)
	}
}

func TestRaces(t *testing.T) {
	if try(t) > 1 {
		return
	}
	n := 0
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() { n++ })
	}
	wg.Wait()
}

// TestFailThenHang and TestThenHang simulate a chance failure that precedes a real one.
func TestFailThenHang(t *testing.T) {
	if try(t) == 1 {
		t.Error("chance")
	}
}

func TestThenHang(t *testing.T) {
	try(t)
	select {}
}

func TestFailThenPanic(t *testing.T) {
	if try(t) == 1 {
		t.Error("chance")
	}
}

func TestThenPanic(t *testing.T) {
	if try(t) == 1 {
		go panic("in the background")
		select {}
	}
}

// TestSkipsLater skips the failed case in its second run.
func TestSkipsLater(t *testing.T) {
	n := try(t)
	t.Run("other", func(t *testing.T) {})
	t.Run("case", func(t *testing.T) {
		if n > 1 {
			t.Skip("not again")
		}
		t.Error("failure")
	})
}

// TestHangsInAttack records an attack that does not end.
func TestHangsInAttack(t *testing.T) {
	if try(t) == 1 {
		record(t, `{"id":"ESC-01","what":"planted","begun":true}`)
		select {}
	}
}

func TestPanics(t *testing.T) {
	if try(t) == 1 {
		panic("planted")
	}
}

func TestHangs(t *testing.T) {
	if try(t) == 1 {
		select {}
	}
}
