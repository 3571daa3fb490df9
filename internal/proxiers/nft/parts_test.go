// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"reflect"
	"testing"
)

// TestNewChainsComeFirst: an element that leads to a new chain comes after it, in a transaction of its own.
func TestNewChainsComeFirst(t *testing.T) {
	chain := func(name, rule string) Chain { return NewChain(name, "", rule) }
	clients := []Container{{Name: "clients", Type: "ipv4_addr"}}
	element := []Element{{In: "service-ips", Key: "10.96.0.1 . tcp . 80", Value: "goto new"}}
	for name, c := range map[string]struct{ gone, come, first, rest Parts }{
		"a new chain": {
			gone: Parts{Chains: []Chain{chain("kept", "drop")}},
			come: Parts{Containers: clients, Elements: element,
				Chains: []Chain{chain("kept", "accept"), chain("new", "accept")}},
			first: Parts{Containers: clients, Chains: []Chain{chain("new", "accept")}},
			rest:  Parts{Chains: []Chain{chain("kept", "accept")}, Elements: element},
		},
		"other rules of a chain": {
			gone: Parts{Chains: []Chain{chain("kept", "drop")}},
			come: Parts{Containers: clients, Chains: []Chain{chain("kept", "accept")}, Elements: element},
			rest: Parts{Containers: clients, Chains: []Chain{chain("kept", "accept")}, Elements: element},
		},
	} {
		if first, rest := ahead(c.gone, c.come); !reflect.DeepEqual(first, c.first) || !reflect.DeepEqual(rest, c.rest) {
			t.Errorf("%s: first %+v, then %+v", name, first, rest)
		}
	}
}
