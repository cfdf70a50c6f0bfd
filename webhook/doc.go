// Package webhook delivers lifecycle events to the webhooks of tenants.
//
// The events are lines of the audit log, which are durable before a change is visible. A webhook
// has the number of the last line that it received. A Deliverer reads the lines after it, sends each
// event in order, and stores the number when the receiver has confirmed the event. So an event is
// delivered at least once, and events that are delivered again have the same IDs.
//
// Start reading at Deliverer.Run.
package webhook
