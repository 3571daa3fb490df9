package spec

import (
	"maps"
	"slices"
)

// Feature is a named promise that a proxier may make and a scenario may need.
type Feature string

// FeatureSet is a set of features.
type FeatureSet map[Feature]bool

// Features builds a set.
func Features(fs ...Feature) FeatureSet {
	set := FeatureSet{}
	for _, f := range fs {
		set[f] = true
	}
	return set
}

// Missing lists what of need the set lacks, sorted.
func (s FeatureSet) Missing(need []Feature) []Feature {
	var out []Feature
	for _, f := range need {
		if !s[f] {
			out = append(out, f)
		}
	}
	slices.Sort(out)
	return out
}

// List is the set in order.
func (s FeatureSet) List() []Feature { return slices.Sorted(maps.Keys(s)) }
