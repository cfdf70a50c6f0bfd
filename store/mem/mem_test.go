package mem_test

import (
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/store/mem"
	"github.com/brig-run/brig/store/storetest"
)

func TestConformance(t *testing.T) {
	storetest.Run(t, func(*testing.T) brig.Store { return mem.New() })
}
