// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// difference is a value that differs. The path begins with the kind: "Service.spec.ports[0].name".
type difference struct {
	path         string
	theirs, ours any
}

func (d difference) String() string {
	return fmt.Sprintf("%s: Kubernetes %s, viplab %s", d.path, compact(d.theirs), compact(d.ours))
}

// compact formats a value on one line.
func compact(v any) string {
	if v == nil {
		return "nothing"
	}
	if text, ok := v.(string); ok && strings.HasPrefix(text, "{") {
		return text
	}
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(data)
}

// differences compares two answers.
func differences(theirs, ours answer) []difference {
	kind, _ := theirs.body["kind"].(string)
	if theirs.code != ours.code {
		return []difference{{"status code", outline(theirs), outline(ours)}}
	}
	return compareObjects(cmp.Or(kind, "body"), theirs.body, ours.body)
}

// outline is the status code and message of an answer.
func outline(a answer) string {
	text, _ := a.body["message"].(string)
	return strings.TrimSpace(strconv.Itoa(a.code) + " " + text)
}

// compareObjects compares two values without what may differ.
func compareObjects(kind string, theirs, ours object) []difference {
	var out []difference
	walk(kind, normal("", theirs), normal("", ours), func(d difference) { out = append(out, d) })
	return out
}

func walk(path string, theirs, ours any, report func(difference)) {
	a, isObject := theirs.(object)
	b, both := ours.(object)
	if isObject && both {
		keys := maps.Clone(a)
		maps.Copy(keys, b)
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			walk(path+"."+key, a[key], b[key], report)
		}
		return
	}
	x, isList := theirs.([]any)
	y, both := ours.([]any)
	if isList && both && len(x) == len(y) {
		for i := range x {
			walk(fmt.Sprintf("%s[%d]", path, i), x[i], y[i], report)
		}
		return
	}
	if !reflect.DeepEqual(theirs, ours) {
		report(difference{path, theirs, ours})
	}
}

// own are the fields and labels of metadata whose values each cluster chooses for itself.
var own = []string{"uid", "resourceVersion", "creationTimestamp", "managedFields", "selfLink", "generation",
	"controller-uid", "batch.kubernetes.io/controller-uid"}

// normal returns a value with placeholders for what a cluster chooses: addresses, ports, times, generated names.
func normal(key string, v any) any {
	switch v := v.(type) {
	case object:
		return normalObject(v)
	case []any:
		out := make([]any, 0, len(v))
		for _, item := range v {
			out = append(out, normal(key, item))
		}
		if key == "causes" {
			return mistakes(v)
		}
		if key == "items" { // Kubernetes leaves out what the list says already
			for _, item := range out {
				if o, ok := item.(object); ok {
					delete(o, "apiVersion")
					delete(o, "kind")
				}
			}
		}
		if key == "items" || key == "endpoints" || key == "ownerReferences" {
			slices.SortFunc(out, func(a, b any) int { return cmp.Compare(sortKey(a), sortKey(b)) })
		}
		return out
	case string:
		return normalText(v)
	case float64:
		if strings.HasSuffix(strings.ToLower(key), "nodeport") && v != 0 {
			return "<port>"
		}
	}
	return v
}

// mistakes returns the fields that an error names, each with its reason, in one line.
func mistakes(causes []any) string {
	var out []string
	for _, c := range causes {
		// Kubernetes writes one field with a capital letter.
		name := strings.ReplaceAll(fmt.Sprint(dig(c, "field")), "LoadBalancerS", "loadBalancerS")
		out = append(out, fmt.Sprint(name, " ", dig(c, "reason")))
	}
	slices.Sort(out)
	return strings.Join(slices.Compact(out), ", ")
}

func sortKey(v any) string {
	name, _ := dig(v, "metadata", "name").(string)
	if revision, ok := dig(v, "revision").(float64); ok { // of ControllerRevisions, whose names end with a hash
		name = fmt.Sprintf("%09.0f", revision)
	}
	return name + compact(v)
}

func normalObject(o object) object {
	out := object{}
	for key, v := range o {
		if !slices.Contains(own, key) {
			out[key] = normal(key, v)
		}
	}
	if prefix, ok := o["generateName"].(string); ok {
		if name, _ := o["name"].(string); strings.HasPrefix(name, prefix) {
			out["name"] = prefix + "<generated>"
		}
	}
	return out
}

// clusterIPs are the ranges that both sides have.
var clusterIPs = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:10:96::/112")}

func normalText(text string) string {
	if _, err := time.Parse(time.RFC3339, text); err == nil {
		return "<time>"
	}
	ip, err := netip.ParseAddr(text)
	if err != nil {
		return text
	}
	for _, r := range clusterIPs {
		if r.Contains(ip) {
			return "<ClusterIP of " + r.String() + ">"
		}
	}
	return text
}
