package engine

import (
	"sync"

	"github.com/brig-run/brig"
)

// tenantMessageBudget and totalMessageBudget are the budgets for the messages of
// interpreters and tools that were not received in full, of one tenant and of the
// server. One message has up to 64 MiB. The first 256 KiB of each process are exempt.
const (
	tenantMessageBudget = 128 << 20
	totalMessageBudget  = 512 << 20
)

// byteBudget bounds the bytes that all users of one kind hold, for each tenant and for
// the server.
type byteBudget struct {
	tenant, all int // bounds

	mu       sync.Mutex // guards the fields below
	byTenant map[string]int
	held     int
}

func newByteBudget(tenant, all int) *byteBudget {
	return &byteBudget{tenant: tenant, all: all, byTenant: map[string]int{}}
}

// rule says which charges a budget allows.
type rule int

const (
	ifFits rule = iota // those that fit in the budgets
	ifRoom             // any charge, unless a budget is used up
	forced             // all
)

// charge charges n bytes to a tenant, and reports whether the budgets allow it.
func (b *byteBudget) charge(tenant string, n int, allow rule) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	more := n
	if allow == ifRoom {
		more = 1
	}
	if allow != forced && (b.byTenant[tenant]+more > b.tenant || b.held+more > b.all) {
		return false
	}
	b.byTenant[tenant] += n
	b.held += n
	return true
}

// refund returns n bytes to the tenant's budget.
func (b *byteBudget) refund(tenant string, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held -= n
	if b.byTenant[tenant] -= n; b.byTenant[tenant] == 0 {
		delete(b.byTenant, tenant)
	}
}

// tenantBudget is a tenant's part of a budget.
type tenantBudget struct {
	budget *byteBudget
	tenant string
}

// Charge implements brig.MessageBudget.
func (b tenantBudget) Charge(n int) bool { return b.budget.charge(b.tenant, n, ifFits) }

// Refund implements brig.MessageBudget.
func (b tenantBudget) Refund(n int) { b.budget.refund(b.tenant, n) }

// limitMessages charges the messages of a process to its tenant's budget. Processes of
// some providers buffer no messages.
func (e *env) limitMessages(p brig.Process, tenant string) {
	if p, ok := p.(interface{ LimitMessages(b brig.MessageBudget) }); ok {
		p.LimitMessages(tenantBudget{e.messages, tenant})
	}
}
