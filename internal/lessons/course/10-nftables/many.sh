# Prints N Services of the app web.
i=0
while [ $i -lt "$1" ]; do
	printf -- '---\napiVersion: v1\nkind: Service\nmetadata: {name: many-%d}\nspec: {selector: {app: web}, ports: [{port: 80}]}\n' $i
	i=$((i + 1))
done
