// Makes the three servers of compose.yaml a replica set, and the users that ../mongodb.md describes. Run in mongosh, connected to the
// first of them from its own machine: MongoDB allows that until there is a user.
const fs = require("fs");
const members = ["mongo1:27017", "mongo2:27017", "mongo3:27017"];
const password = (user) => fs.readFileSync(`/run/secrets/mongodb-${user}`, "utf8").trim();
const admin = db.getSiblingDB("admin");

function authenticated() {
  try {
    return admin.auth("admin", password("admin")).ok === 1;
  } catch (e) {
    return false; // there is no user yet
  }
}

// primary waits until this server is the one that takes writes. It is preferred, so it becomes so again where another was.
function primary() {
  for (let seconds = 0; !db.hello().isWritablePrimary; seconds++) {
    if (seconds === 120) throw new Error("this server is not the primary after two minutes");
    sleep(1000);
  }
}

// user makes a role with the rights to one database and a user that has it, or gives the user the password.
function user(name, database, role, actions) {
  const own = db.getSiblingDB(database);
  const privileges = [{resource: {db: database, collection: ""}, actions}];
  if (own.getRole(role) === null) own.createRole({role, roles: [], privileges});
  else own.updateRole(role, {privileges});
  if (own.getUser(name) === null) own.createUser({user: name, pwd: password(name), roles: [role]});
  else own.changeUserPassword(name, password(name));
}

if (!authenticated()) {
  try {
    rs.initiate({_id: "rs0", members: members.map((host, _id) => ({_id, host, priority: _id === 0 ? 2 : 1}))});
  } catch (e) {
    if (e.codeName !== "AlreadyInitialized") throw e; // it was broken off before there was a user
  }
  primary();
  admin.createUser({user: "admin", pwd: password("admin"), roles: ["userAdminAnyDatabase", "clusterAdmin"]});
  if (!authenticated()) throw new Error("the user admin cannot come in");
}
primary();
user("sidecar", "sluice", "sluiceSidecar",
  ["find", "insert", "update", "remove", "listCollections", "listIndexes", "createCollection", "createIndex"]);
user("controlplane", "controlplane", "sluiceControlPlane", ["find", "insert", "update", "remove", "createCollection"]);
print("the replica set and its users are there");
