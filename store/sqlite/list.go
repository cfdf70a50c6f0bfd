package sqlite

import (
	"context"
	"fmt"
	"strings"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/store/contract"
)

// List implements brig.Store.
func (s *executions) List(ctx context.Context, tenant string, o brig.ListOptions) ([]*brig.Record, string, error) {
	limit, err := contract.Limit(o)
	if err != nil {
		return nil, "", err
	}
	q, args, err := selection(tenant, o, limit+1) // one extra record reveals whether there is a next page
	if err != nil {
		return nil, "", err
	}
	var page []*brig.Record
	full, size := false, 0
	err = queryWhile(ctx, s.readers, func(row scanner) (bool, error) {
		if full = len(page) == limit || size >= contract.ListedBytes; full {
			return false, nil
		}
		var doc string
		var data []byte
		if err := row.Scan(&doc, &data); err != nil {
			return false, err
		}
		r, err := decode[brig.Record](doc, data)
		page, size = append(page, r), size+len(doc)+len(data)
		return err == nil, err
	}, q, args...)
	if err != nil {
		return nil, "", wrap(err, "list sandboxes of %s", tenant)
	}
	if !full {
		return page, "", nil
	}
	last := page[len(page)-1]
	return page, contract.Position{Created: last.Created, ID: last.ID}.EncodeCursor(), nil
}

// selection builds the query of List. All values from the caller are arguments.
func selection(tenant string, o brig.ListOptions, limit int) (string, []any, error) {
	var q strings.Builder
	var args []any
	arg := func(v any) string {
		args = append(args, v)
		return fmt.Sprintf("$%d", len(args))
	}
	fmt.Fprintf(&q, "select doc, data from sandboxes where tenant = %s", arg(tenant))
	for k, v := range o.Labels {
		fmt.Fprintf(&q, " and exists (select 1 from labels where sandbox = sandboxes.id and key = %s and value = %s)", arg(k), arg(v))
	}
	if len(o.States) == 1 && o.States[0] == brig.Ended {
		q.WriteString(" and state = 'stopped'") // as text, because the index sandboxes_ended has this condition
	} else if len(o.States) > 0 {
		marks := make([]string, len(o.States))
		for i, state := range o.States {
			marks[i] = arg(string(state))
		}
		fmt.Fprintf(&q, " and state in (%s)", strings.Join(marks, ", "))
	}
	after, err := contract.ParseCursor(o.Cursor)
	if err != nil {
		return "", nil, err
	}
	if after != nil {
		fmt.Fprintf(&q, " and (created_ns, id) < (%s, %s)", arg(toNanos(after.Created)), arg(string(after.ID)))
	}
	fmt.Fprintf(&q, " order by created_ns desc, id desc limit %s", arg(limit))
	return q.String(), args, nil
}
