<?php
// Fills the database: `php install.php`.
define('WP_INSTALLING', true);
$_SERVER['HTTP_HOST'] = 'stand.test';
require __DIR__ . '/wp-config.php';
require_once ABSPATH . 'wp-admin/includes/upgrade.php';
function wp_mail() {
    return true;
}
wp_install('Stand', 'ann', 'ann@example.org', true, '', 'secret of ann');
wp_create_user('bob', 'secret of bob', 'bob@example.org');
update_option('permalink_structure', '/%postname%/');
