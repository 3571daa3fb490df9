// SPDX-License-Identifier: Apache-2.0

package services

import (
	"slices"
	"sync"

	"github.com/viplab/viplab/internal/suite/services/oracle"
)

// Coverage counts what a run has visited. It is safe for concurrent use, and a nil Coverage counts nothing.
type Coverage struct {
	mu sync.Mutex

	States, Histories int
	// Policies counts the NetworkPolicies of all states.
	Policies int
	// Values counts the values of the fields of Services: "type=NodePort".
	Values map[string]int
	// Pairs counts the pairs of values of two fields in one Service.
	Pairs map[string]int
	// Changes counts the kinds of changes.
	Changes map[string]int
	// Rules counts the answers by the rules that decide them, those included that nothing was asked for.
	Rules map[string]int
}

// NewCoverage returns an empty count.
func NewCoverage() *Coverage {
	return &Coverage{Values: map[string]int{}, Pairs: map[string]int{}, Changes: map[string]int{},
		Rules: map[string]int{}}
}

// Add counts a case that was played.
func (c *Coverage) Add(played Case) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.States += len(played.States)
	if len(played.States) > 1 {
		c.Histories++
	}
	for _, s := range played.States {
		c.Policies += len(s.Policies)
		for _, svc := range s.Services {
			var values []string
			for _, f := range fields {
				values = append(values, f.name+"="+f.value(svc))
			}
			for i, v := range values {
				c.Values[v]++
				for _, other := range values[i+1:] {
					c.Pairs[v+" "+other]++
				}
			}
		}
		for _, kind := range s.Kinds {
			c.Changes[kind]++
		}
		if s.Life != nil {
			c.Changes[s.Life.kind()]++
		}
	}
}

func (c *Coverage) addAnswer(a oracle.Answer) {
	if c == nil || len(a.Rules) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range a.Rules {
		c.Rules[r.Name]++
	}
}

// Never returns the rules of the oracle that decided no answer, and the kinds of changes that were not made, sorted.
func (c *Coverage) Never() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	names := []string{}
	for _, r := range oracle.Rules() {
		if c.Rules[r.Name] == 0 {
			names = append(names, r.Name)
		}
	}
	for _, kind := range changes {
		if !edited(kind.name) && c.Changes[kind.name] == 0 && !slices.Contains(names, kind.name) {
			names = append(names, kind.name)
		}
	}
	for _, kind := range policyChanges {
		if c.Policies > 0 && c.Changes[kind.name] == 0 {
			names = append(names, kind.name)
		}
	}
	for _, e := range events {
		if name := (&Life{Event: e.name}).kind(); c.Changes[name] == 0 {
			names = append(names, name)
		}
	}
	for _, f := range fields {
		if name := editOf(f.name); !f.fixed && c.Changes[name] == 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
