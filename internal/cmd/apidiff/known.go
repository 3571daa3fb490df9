// SPDX-License-Identifier: Apache-2.0

package main

import (
	"regexp"
	"strings"
)

// known is a difference that stays, with the reason.
type known struct {
	path   *regexp.Regexp // of difference.path
	theirs string         // part of what Kubernetes says; empty if it does not matter
	ours   string         // part of what viplab says
	reason string
}

func at(path, reason string) known { return known{path: regexp.MustCompile(path), reason: reason} }

// causes returns a difference in the mistakes that an error lists.
func causes(theirs, ours, reason string) known {
	return known{regexp.MustCompile(`^Status\.details\.causes$`), theirs, ours, reason}
}

// knownDifferences are those that stay. The first that matches applies.
var knownDifferences = []known{
	at(`^Status\.message$`,
		"viplab words errors for people who write manifests; codes, reasons and fields are the same"),
	at(`^Status\.details$`, "Kubernetes sends empty details with errors about no object"),
	at(`^Status\.details\.kind$`, "Kubernetes names the kind where viplab names the resource, or the reverse"),
	causes("spec.clusterIPs FieldValueInvalid", "metadata.name FieldValueRequired",
		"Kubernetes allocates an address before it misses the name"),
	causes("spec.ports[0].nodePort FieldValueInvalid", ".nodePort FieldValueInvalid",
		"Kubernetes says the first port for any whose node port cannot be had"),
	causes("nodePort FieldValueDuplicate", "FieldValueDuplicate",
		"Kubernetes gives two equal ports one node port, and counts that as another mistake"),
	{regexp.MustCompile(`^status code$`), "201", "ports[0].port: Invalid value",
		"Kubernetes takes port numbers in EndpointSlices that no packet can have"},
	at(`^body\.`, "Kubernetes answers with a text where a group is not served"),
	at(`^Node\.spec\.taints$`, "nodes of a lab are ready from the beginning; the node controller taints others"),
	at(`^\w+List\.metadata\.(continue|remainingItemCount)$|^ServiceList\.items$`, "viplab sends a whole list as one page"),
	at(`metadata\.annotations(\.endpoints\.kubernetes\.io/last-change-trigger-time)?$`,
		"the time of a change is for measuring latencies; in a lab, controllers are part of the change"),
	at(`^Endpoints.*\.subsets$`, "Endpoints of a Service whose target port no pod has list addresses without ports"),
	at(`spec\.(tolerations|priority|preemptionPolicy)$`,
		"admission plugins of Kubernetes set it; nothing in a lab reads it"),
	at(`^Pod\.metadata\.deletion`, "a pod that goes at once has no time of its deletion"),
	at(`^(Scale|DaemonSet|StatefulSet)\.status|^PodList.*\.(nodeName|conditions)$|`+
		`^ServiceCIDR\.(status\.conditions|metadata\.finalizers)$`,
		"in a lab, controllers and scheduler are part of the change"),
	at(`^ReplicaSetList.*(annotations\.deployment\..*-replicas|status\.(observedGeneration|terminatingReplicas))$`,
		"the Deployment controller's notes to itself; kubectl reads the revision alone"),
	at(`(pod-template-hash|controller-revision-hash|controller\.kubernetes\.io/hash)$|`+
		`metadata\.(name|generateName)$|ownerReferences\[\d+\]\.name$`,
		"the hash of a pod template is computed in another way"),
}

// reasonFor returns why a difference stays, or "" for one that is not known.
func reasonFor(d difference) string {
	for _, k := range knownDifferences {
		if k.path.MatchString(d.path) && strings.Contains(compact(d.theirs), k.theirs) &&
			strings.Contains(compact(d.ours), k.ours) {
			return k.reason
		}
	}
	return ""
}
