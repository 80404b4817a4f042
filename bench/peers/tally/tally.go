// Package tally counts hits of descriptors, as bench/noop.py does.
package tally

import (
	"strings"
	"sync"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
)

// Tally holds a count for each domain and descriptor.
type Tally struct {
	mu     sync.Mutex
	counts map[string]uint32
}

// New gives an empty one.
func New() *Tally { return &Tally{counts: map[string]uint32{}} }

// Hit counts one hit and tells the count.
func (t *Tally) Hit(domain string, d *common.RateLimitDescriptor) uint32 {
	var key strings.Builder
	key.WriteString(domain)
	for _, e := range d.Entries {
		key.WriteByte('_')
		key.WriteString(e.Key)
		key.WriteByte('_')
		key.WriteString(e.Value)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.counts[key.String()] + 1
	t.counts[key.String()] = n
	return n
}
