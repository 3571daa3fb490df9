// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// What pods find of their ServiceAccount, and where (plugin/pkg/admission/serviceaccount).
const (
	defaultAccount = "default"
	rootCA         = "kube-root-ca.crt"
	accountFolder  = "/var/run/secrets/kubernetes.io/serviceaccount"
	accessVolume   = "kube-api-access-"
	accessSeconds  = 3607
)

// ServeAccounts gives every namespace a ServiceAccount default and a ConfigMap kube-root-ca.crt with the certificates
// of the API's authority, in PEM. From now on, new pods get the name of a ServiceAccount and a volume with a token of
// it, unless they or the account say automountServiceAccountToken: false.
func (s *Store) ServeAccounts(ca []byte) error {
	return s.Do(func(tx *Tx) error {
		s.ca = string(ca)
		for k := range s.namespaces.objects {
			tx.namespaces[k] = struct{}{}
		}
		return nil
	})
}

// furnish makes what every namespace has, again if someone has deleted it.
func (tx *Tx) furnish(key Key) {
	ns := tx.s.namespaces.objects[key]
	if ns == nil || ns.DeletionTimestamp != nil || tx.s.ca == "" {
		return
	}
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: ns.Name, Name: name} }
	if _, there := tx.s.find(KindServiceAccount, ns.Name, defaultAccount); !there {
		a := &corev1.ServiceAccount{ObjectMeta: meta(defaultAccount)}
		tx.put(ResourceOf(a), a)
	}
	ca := &corev1.ConfigMap{ObjectMeta: meta(rootCA), Data: map[string]string{"ca.crt": tx.s.ca}}
	tx.replace(ca)
}

// touchedAccount notes that a namespace may lack what every namespace has.
func (tx *Tx) touchedAccount(k Kind, o Object) {
	switch k {
	case KindNamespace:
		tx.namespaces[KeyOf(o)] = struct{}{}
	case KindServiceAccount, KindConfigMap:
		if k == KindServiceAccount && tx.s.ca != "" {
			for kind, set := range tx.work { // their pods may have waited for it
				for _, key := range tx.s.tables[kind].inNamespace(o.GetNamespace()) {
					set[key] = struct{}{}
				}
			}
		}
		if o.GetName() == defaultAccount || o.GetName() == rootCA {
			tx.namespaces[Key{"", o.GetNamespace()}] = struct{}{}
		}
	}
}

// giveAccount gives a pod its ServiceAccount and the volume with a token. old is the pod that it replaces, or nil.
func (tx *Tx) giveAccount(p, old *corev1.Pod) field.ErrorList {
	if tx.s.ca == "" {
		return nil
	}
	spec := &p.Spec
	setDefault(&spec.ServiceAccountName, defaultAccount)
	spec.DeprecatedServiceAccount = spec.ServiceAccountName
	isAccess := func(v corev1.Volume) bool { return strings.HasPrefix(v.Name, accessVolume) }
	if old != nil && !slices.ContainsFunc(old.Spec.Volumes, isAccess) {
		spec.ServiceAccountName = old.Spec.ServiceAccountName
		spec.DeprecatedServiceAccount = old.Spec.DeprecatedServiceAccount
		return nil
	}
	if spec.ServiceAccountName == defaultAccount {
		tx.furnish(Key{"", p.Namespace}) // the namespace may be of the same transaction
	}
	found, ok := tx.s.find(KindServiceAccount, p.Namespace, spec.ServiceAccountName)
	if !ok {
		return field.ErrorList{field.NotFound(field.NewPath("spec", "serviceAccountName"), spec.ServiceAccountName)}
	}
	automount := found.(*corev1.ServiceAccount).AutomountServiceAccountToken
	if spec.AutomountServiceAccountToken != nil {
		automount = spec.AutomountServiceAccountToken
	}
	if !ptr.Deref(automount, true) || slices.ContainsFunc(spec.Volumes, isAccess) {
		return nil
	}
	mountAccess(p)
	return nil
}

// mountAccess adds the volume with the token to the containers that mount nothing at its place.
func mountAccess(p *corev1.Pod) {
	name := accessVolume + suffix(KeyOf(p).String()+" access")
	mounted := false
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			if !slices.ContainsFunc(list[i].VolumeMounts, func(m corev1.VolumeMount) bool {
				return m.MountPath == accountFolder
			}) {
				list[i].VolumeMounts = append(list[i].VolumeMounts,
					corev1.VolumeMount{Name: name, ReadOnly: true, MountPath: accountFolder})
				mounted = true
			}
		}
	}
	if !mounted {
		return
	}
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		Projected: &corev1.ProjectedVolumeSource{DefaultMode: ptr.To[int32](0o644), Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{
				ExpirationSeconds: ptr.To[int64](accessSeconds), Path: "token"}},
			{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: rootCA},
				Items: []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}}}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{Path: "namespace",
				FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"}}}}},
		}},
	}})
}

// putPod stores a pod of a controller, with its ServiceAccount. If there is no such account, an Event says so, and
// the pod comes with the account.
func (tx *Tx) putPod(owner Object, p *corev1.Pod) {
	if errs := tx.giveAccount(p, nil); len(errs) > 0 {
		tx.record(Notice{About: owner, Warning: true, Reason: "FailedCreate",
			Message:   fmt.Sprintf("Error creating: pods %q is forbidden: %v", p.Name, errs.ToAggregate()),
			Component: controllerNames[ResourceOf(owner).Kind]})
		return
	}
	tx.put(ResourceOf(p), p)
	tx.sayPod(owner, "create", p)
}
