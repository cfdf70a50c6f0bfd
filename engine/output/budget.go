package output

import "sync"

// Budget limits the bytes that all users of one kind hold, per tenant and in total.
type Budget struct {
	tenant, all int // limits in bytes

	mu       sync.Mutex // guards the fields below
	byTenant map[string]int
	held     int
}

// NewBudget returns a budget with limits in bytes for one tenant and for the server.
func NewBudget(tenant, all int) *Budget {
	return &Budget{tenant: tenant, all: all, byTenant: map[string]int{}}
}

// rule determines which charges a budget allows.
type rule int

const (
	ifFits rule = iota // only charges that fit in the budgets
	ifRoom             // any charge, unless a budget is used up
	forced             // all
)

// charge charges n bytes to a tenant, and reports whether the budgets allow it.
func (b *Budget) charge(tenant string, n int, allow rule) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	needed := n
	if allow == ifRoom {
		needed = 1
	}
	if allow != forced && (b.byTenant[tenant]+needed > b.tenant || b.held+needed > b.all) {
		return false
	}
	b.byTenant[tenant] += n
	b.held += n
	return true
}

// refund returns n bytes to the tenant's budget.
func (b *Budget) refund(tenant string, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held -= n
	if b.byTenant[tenant] -= n; b.byTenant[tenant] == 0 {
		delete(b.byTenant, tenant)
	}
}

// Held returns the number of bytes that are charged.
func (b *Budget) Held() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.held
}

// ForTenant returns a tenant's part of the budget.
func (b *Budget) ForTenant(tenant string) TenantPart { return TenantPart{b, tenant} }

// TenantPart is a tenant's part of a budget.
type TenantPart struct {
	budget *Budget
	tenant string
}

// Charge implements brig.MessageBudget.
func (p TenantPart) Charge(n int) bool { return p.budget.charge(p.tenant, n, ifFits) }

// Refund implements brig.MessageBudget.
func (p TenantPart) Refund(n int) { p.budget.refund(p.tenant, n) }
